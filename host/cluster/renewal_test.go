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
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// allowing leads the metadata shard and permits each node to discard its data.
type allowing struct {
	peer.NoControl
	allowed atomic.Int32
}

func (a *allowing) Probe(context.Context) (*peerv1.ProbeResponse, error) {
	return &peerv1.ProbeResponse{NodeId: "n1", ClusterId: "c", Leader: "n1"}, nil
}

func (a *allowing) Renew(context.Context, sharding.NodeID) error {
	a.allowed.Add(1)
	return nil
}

// TestInterruptedRenewalIsRepeated checks a node that is permitted to set its
// data aside and ends before it has done so: after a restart it asks again
// and is permitted. A node that has set its data aside must wait before it
// may do so again.
func TestInterruptedRenewalIsRepeated(t *testing.T) {
	n1 := new(allowing)
	_, at := answering(t, "n1", n1)
	self, here := answering(t, "n2", peer.NoControl{})
	dir := t.TempDir()
	id := datadir.Identity{Format: sharding.Version1, Node: "n2", Disk: "d", Incarnation: 5, Cluster: "c", Shards: 1, Several: true}
	if err := id.Write(dir); err != nil {
		t.Fatal(err)
	}
	atStart := func(ctx context.Context) error {
		stored, err := datadir.ReadIdentity(dir)
		if err != nil {
			t.Fatal(err)
		}
		r := cluster.Renewal{
			Identity: datadir.NewRecord(dir, stored), AddressBook: cluster.NewAddressBook("n2", self), Logger: slog.New(slog.DiscardHandler),
			Entrance: entryFunc(func() cluster.Entry {
				return cluster.Entry{Peers: self, Self: meta.Member{Node: "n2", Address: here}, Seeds: []string{at}}
			}),
		}
		return r.AtStart(ctx, fmt.Errorf("a table: %w", journal.ErrDamaged))
	}
	for start := range int32(3) {
		if err := atStart(t.Context()); !errors.Is(err, cluster.ErrDamagedData) || n1.allowed.Load() != start+1 {
			t.Fatalf("start %d: %v, allowed %d times", start, err, n1.allowed.Load())
		}
	}
	id.Renewed = time.Now().UnixMilli()
	if err := id.Write(dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := atStart(ctx); errors.Is(err, cluster.ErrDamagedData) || !strings.Contains(err.Error(), "already rebuilt its data") || n1.allowed.Load() != 3 {
		t.Errorf("soon after it has done so: %v, allowed %d times", err, n1.allowed.Load())
	}
}
