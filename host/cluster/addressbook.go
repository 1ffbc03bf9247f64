package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/membership"
	"github.com/hostd/hostd/sharding/meta"
)

// publisher learns where the other nodes listen.
type publisher interface {
	SetAddresses(map[sharding.NodeID]string)
}

// AddressBook knows where nodes listen and which node holds a replica. It
// combines the metadata, the answer to this node's join, and gossip about
// members that are not at the address in the metadata.
type AddressBook struct {
	self    sharding.NodeID
	publish publisher

	mu            sync.Mutex
	joinReplicas  map[sharding.ReplicaID]sharding.NodeID // metadata replicas in the answer to the join
	joinAddresses map[sharding.NodeID]string             // addresses in the answer to the join
	view          *meta.View
	gossiped      []membership.Peer // all nodes in the gossip
	moved         []membership.Peer
	last          map[sharding.NodeID]string
	// peersAt maps members' client addresses to their addresses for nodes. It
	// also contains the client addresses as the gossip layer, which knows no
	// names, resolves them.
	peersAt map[string]string
}

// NewAddressBook returns an address book that publishes the other nodes'
// addresses to p whenever they change.
func NewAddressBook(self sharding.NodeID, p publisher) *AddressBook {
	return &AddressBook{self: self, publish: p}
}

// LearnJoin records the response to this node's join.
func (b *AddressBook) LearnJoin(j *Joined) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joinReplicas, b.joinAddresses = j.Nodes, j.Addresses
	b.update()
}

// learn applies a view of the metadata.
func (b *AddressBook) learn(view *meta.View) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.view = view
	b.update()
}

// learnGossip applies all nodes in the gossip, and the members among them that
// have moved according to the GossipVerifier.
func (b *AddressBook) learnGossip(peers, moved []membership.Peer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gossiped, b.moved = peers, moved
	b.update()
}

func (b *AddressBook) update() {
	next := maps.Clone(b.joinAddresses)
	if next == nil {
		next = map[sharding.NodeID]string{}
	}
	start, peersAt := map[sharding.NodeID]uint64{}, map[string]string{}
	if b.view != nil {
		for _, m := range b.view.Members() {
			next[m.Node], start[m.Node] = m.PeerEndpoint(), m.Incarnation
			peersAt[m.Address] = m.PeerAddress
		}
	}
	for _, p := range b.moved {
		if known, member := start[p.ID]; member && p.Incarnation >= known {
			next[p.ID] = p.Address
		}
	}
	if b.view != nil {
		for _, p := range b.gossiped {
			m, member := b.view.Member(p.ID)
			if _, known := peersAt[p.Gossip]; member && !known && p.Address == m.Address {
				peersAt[p.Gossip] = m.PeerAddress
			}
		}
	}
	b.peersAt = peersAt
	delete(next, b.self)
	if !maps.Equal(next, b.last) {
		b.last = next
		b.publish.SetAddresses(maps.Clone(next))
	}
}

// Locate returns the node of a replica.
func (b *AddressBook) Locate(shard sharding.ShardID, replica sharding.ReplicaID) (sharding.NodeID, bool) {
	b.mu.Lock()
	view, told := b.view, b.joinReplicas
	b.mu.Unlock()
	if view != nil {
		if node, ok := view.ReplicaNode(shard, replica); ok {
			return node, true
		}
	}
	if shard == sharding.MetaShard {
		node, ok := told[replica]
		return node, ok
	}
	return "", false
}

// IsUnknownReplica reports whether the replica cannot belong to the shard,
// according to this node's metadata. A replica of the metadata shard that
// this node does not know yet is not ruled out, because it may be the
// leader, from which this node has to learn of it.
func (b *AddressBook) IsUnknownReplica(shard sharding.ShardID, replica sharding.ReplicaID) bool {
	if _, known := b.Locate(shard, replica); known {
		return false
	}
	b.mu.Lock()
	view := b.view
	b.mu.Unlock()
	if view == nil {
		return false
	}
	return shard != sharding.MetaShard || replica < view.NextReplica()
}

// GossipAt returns where to send gossip to a node that announced address. A
// node that started before the metadata had its address for nodes announces its
// client address.
func (b *AddressBook) GossipAt(address string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.peersAt[address]; at != "" {
		return at
	}
	return address
}

// Addresses returns the addresses of all other nodes, sorted.
func (b *AddressBook) Addresses() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Values(b.last))
}

// Follow updates the address book with each view of the metadata, and then
// passes the view to the function also, until ctx ends.
func (b *AddressBook) Follow(ctx context.Context, m *Metadata, also func(*meta.View)) {
	var seen *meta.View
	for {
		changed := m.Changed()
		if view := m.View(); view != seen {
			seen = view
			b.learn(view)
			also(view)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
