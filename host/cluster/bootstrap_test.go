package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding/bootstrap"
	"github.com/hostd/hostd/sharding/meta"
)

// lastMember is the last node with data of a cluster that has lost its
// majority: it admits nobody.
type lastMember struct {
	peer.NoControl
	gone atomic.Bool
}

func (m *lastMember) Probe(context.Context) (*peerv1.ProbeResponse, error) {
	if m.gone.Load() {
		return nil, errors.New("gone")
	}
	return &peerv1.ProbeResponse{NodeId: "n1", ClusterId: "c"}, nil
}

// Join implements peer.Control.
func (m *lastMember) Join(context.Context, *peerv1.JoinRequest) (*peerv1.JoinResponse, error) {
	return nil, fmt.Errorf("%w: shard 0 has no known leader", peer.ErrUnavailable)
}

// willing is an empty node that votes for n2.
type willing struct{ peer.NoControl }

func (willing) BootstrapVote(context.Context, *peerv1.PledgeRequest) (*peerv1.PledgeResponse, error) {
	return &peerv1.PledgeResponse{NodeId: "n3", To: "n2"}, nil
}

// noBallot stores no votes.
type noBallot struct{}

func (noBallot) SaveVote(bootstrap.Vote) error { return nil }

// TestNodeThatKnowsAClusterBootstrapsNone checks an empty node that was told of
// a cluster which cannot admit it. The cluster's last member disappears, and an
// operator orders the node to bootstrap, for which it has the votes. The node
// waits for the cluster instead, because the member may come back with its data.
func TestNodeThatKnowsAClusterBootstrapsNone(t *testing.T) {
	n1 := new(lastMember)
	_, first := answering(t, "n1", n1)
	_, third := answering(t, "n3", willing{})
	self, here := answering(t, "n2", peer.NoControl{})
	b := cluster.NewBootstrap("n2", 1, bootstrap.Vote{}, false, 0, noBallot{})
	entry := cluster.Entry{Peers: self, Self: meta.Member{Node: "n2", Address: here, Disk: "d", Incarnation: 5}, Seeds: []string{first, third}, Bootstrap: b, Logger: slog.New(slog.DiscardHandler)}
	ctx, stop := context.WithCancel(t.Context())
	entered := make(chan error, 1)
	go func() {
		joined, err := entry.Enter(ctx)
		if joined == nil && err == nil {
			err = errors.New("the node bootstraps a cluster")
		}
		entered <- err
	}()
	await := func(waits string) {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for s := b.Stage(); s.Cluster != "c" || !strings.Contains(s.Waits, waits); s = b.Stage() {
			select {
			case <-tick.C:
			case err := <-entered:
				t.Fatalf("%q is not reported: %v", waits, err)
			case <-t.Context().Done():
				t.Fatalf("%q is not reported: %+v", waits, s)
			}
		}
	}
	await("a seed belongs to cluster c, which has not admitted this node")
	n1.gone.Store(true)
	b.Order()
	await("cluster c, of which no node answers now")
	stop()
	if err := <-entered; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
