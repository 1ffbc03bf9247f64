package cluster

import (
	"context"
	"fmt"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// verifyApplicant checks a request to admit a node, because any process can
// send such a request. The node itself must confirm the request's claims at
// its address, and an earlier incarnation of a member must no longer run.
// Without this check, anybody could remove a member from the cluster with
// one request in its name.
func (o *ControlOptions) verifyApplicant(ctx context.Context, asks meta.Member) error {
	view := o.Metadata.View()
	cluster, _ := view.Cluster()
	known, member := view.Member(asks.Node)
	if err := meta.CheckIncarnation(asks.Node, asks.Incarnation, o.Self, time.Now(), view.LastStart(asks.Node)); err != nil {
		return fmt.Errorf("%w: %w", peer.ErrRefused, err)
	}
	same := member && known.Incarnation == asks.Incarnation && known.Disk == asks.Disk
	if same && known.PeerEndpoint() == asks.PeerEndpoint() && (asks.Address == "" || known.Address == asks.Address) {
		return nil
	}
	if view.ClusterVersion() >= sharding.VersionPeerAddress && asks.PeerAddress == "" {
		return fmt.Errorf("%w: node %s has no peer address", peer.ErrUnavailable, asks.Node)
	}
	answer, ok := probeStart(ctx, o.Peers, cluster.ID, asks.PeerEndpoint(), asks.Node, asks.Incarnation)
	if !ok {
		return fmt.Errorf("%w: the current start of node %s does not answer at %.200q", peer.ErrUnavailable, asks.Node, asks.PeerEndpoint())
	}
	said := answer.GetAddress()
	if said != "" && asks.Address != "" && said != asks.Address {
		return fmt.Errorf("%w: node %s does not confirm the client address %.200q", peer.ErrUnavailable, asks.Node, asks.Address)
	}
	first := same && said == known.Address && known.PeerAddress == ""
	if member && known.PeerEndpoint() != asks.PeerEndpoint() {
		if answer, ok = probeStart(ctx, o.Peers, cluster.ID, known.PeerEndpoint(), known.Node, known.Incarnation); !ok {
			return nil
		}
		if first && answer.GetPeerAddress() == asks.PeerAddress {
			return nil // a known incarnation now reports more of its addresses
		}
		return fmt.Errorf("%w: node %s runs at %s", peer.ErrUnavailable, known.Node, known.PeerEndpoint())
	}
	return nil
}

// runs reports whether the given incarnation of a node answers at an
// address, see probeStart.
func runs(ctx context.Context, peers prober, cluster, address string, node sharding.NodeID, incarnation uint64) bool {
	_, ok := probeStart(ctx, peers, cluster, address, node, incarnation)
	return ok
}

// probeStart returns the answer at an address, and whether the given
// incarnation of a node gave that answer; incarnation 0 means any. A node
// that is about to join names no cluster.
func probeStart(ctx context.Context, peers prober, cluster, address string, node sharding.NodeID, incarnation uint64) (*peerv1.ProbeResponse, bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	r, err := peers.Probe(ctx, address)
	return r, err == nil && r.GetNodeId() == string(node) && (r.GetClusterId() == "" || r.GetClusterId() == cluster) &&
		(incarnation == 0 || r.GetIncarnation() == incarnation)
}
