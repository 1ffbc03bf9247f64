package cluster

import (
	"context"
	"sync"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding/membership"
	"github.com/hostd/hostd/sharding/meta"
)

// lookAgain is how often claims are judged again that the metadata contradicts,
// or says nothing of.
const lookAgain = 2 * time.Second

// Hearsay judges what gossip says. Anybody may gossip where there is no key, so
// it admits nobody and moves nobody who is where the metadata says: it finds
// members that have moved while nobody could write that into the metadata.
type Hearsay struct {
	AddressBook *AddressBook
	View        func() *meta.View
	Probe       func(ctx context.Context, address string) (*peerv1.ProbeResponse, error)
	// Cluster is that of this node.
	Cluster func() string
}

// Follow keeps the address book up to what gossip brings and what is true of
// it, until ctx ends.
func (h *Hearsay) Follow(ctx context.Context, gossip *membership.Membership) {
	every := time.NewTicker(lookAgain)
	defer every.Stop()
	for {
		changed := gossip.Changes()
		peers := gossip.Nodes()
		moved, open := h.judge(ctx, peers)
		h.AddressBook.Hear(peers, moved)
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

// judge returns the members that are not where the metadata says, and of how
// many it may judge otherwise later: those that are said to be elsewhere, and
// those that are no members, since a node that starts hears of others before it
// has read its metadata. All that moved are asked at once, for at most
// probeTimeout.
func (h *Hearsay) judge(ctx context.Context, peers []membership.Peer) (moved []membership.Peer, open int) {
	view, now := h.View(), time.Now()
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
			found[i] = !h.runs(ctx, m.PeerEndpoint(), m.Node, 0) && h.runs(ctx, p.Address, p.ID, p.Incarnation)
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
