package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/hostd/hostd/sharding/membership"
	"github.com/hostd/hostd/sharding/meta"
)

// lookAgain is the interval between two checks of gossip that contradicts
// the metadata or names nodes that are not in the metadata.
const lookAgain = 2 * time.Second

// GossipVerifier verifies gossip. Without a key anybody can gossip, so gossip never
// admits a node, and it never changes the address of a node that answers at the
// address in the metadata. Gossip only finds members that have moved while
// their new address could not be written to the metadata.
type GossipVerifier struct {
	AddressBook *AddressBook
	Metadata    *Metadata
	Peers       prober
	Cluster     string // cluster of this node
}

// Follow updates the address book with the gossip and with the verified moves,
// until ctx ends.
func (h *GossipVerifier) Follow(ctx context.Context, gossip *membership.Membership) {
	every := time.NewTicker(lookAgain)
	defer every.Stop()
	for {
		changed := gossip.Changes()
		peers := gossip.Nodes()
		moved, open := h.verify(ctx, peers)
		h.AddressBook.learnGossip(peers, moved)
		for waiting := true; waiting; {
			select {
			case <-changed:
				waiting = false
			case <-every.C:
				waiting = open == 0
			case <-ctx.Done():
				return
			}
		}
	}
}

// verify returns the members that are not at the address in the metadata, and
// the number of nodes whose result may change later: nodes that gossip places
// elsewhere, and nodes that are not members. Such a node may turn out to be
// a member, because a starting node receives gossip before it has read the
// metadata. All candidates are probed concurrently, for at most
// probeTimeout.
func (h *GossipVerifier) verify(ctx context.Context, peers []membership.Peer) (moved []membership.Peer, open int) {
	view, now := h.Metadata.View(), time.Now()
	var asked sync.WaitGroup
	found := make([]bool, len(peers))
	for i, p := range peers {
		m, ok := view.Member(p.ID)
		if !ok {
			open++
			continue
		}
		if p.Left || p.Disk != m.Disk || p.Address == m.Address || p.Address == m.PeerAddress || p.Incarnation < m.Incarnation ||
			p.Incarnation > meta.LatestIncarnation(now, m.Incarnation) {
			continue
		}
		open++
		asked.Go(func() {
			found[i] = !runs(ctx, h.Peers, h.Cluster, m.PeerEndpoint(), m.Node, 0) && runs(ctx, h.Peers, h.Cluster, p.Address, p.ID, p.Incarnation)
		})
	}
	asked.Wait()
	for i, p := range peers {
		if found[i] {
			moved = append(moved, p)
		}
	}
	return moved, open
}
