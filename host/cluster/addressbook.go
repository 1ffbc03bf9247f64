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

// AddressBook says where nodes listen and where replicas live, from all that a
// node has heard: the metadata, what it was told when it joined, and of members
// that are not where the metadata says what gossip knows of them.
type AddressBook struct {
	self    sharding.NodeID
	publish func(map[sharding.NodeID]string)

	mu    sync.Mutex
	told  map[sharding.ReplicaID]sharding.NodeID // of the metadata shard, when the node joined
	first map[sharding.NodeID]string             // likewise
	view  *meta.View
	heard []membership.Peer // all that gossip knows
	moved []membership.Peer
	last  map[sharding.NodeID]string
	// peersAt finds members' addresses for nodes by those for clients, and by
	// what those are to who gossips, which knows no names.
	peersAt map[string]string
}

// NewAddressBook makes an address book that publishes the addresses of the
// other nodes whenever they change.
func NewAddressBook(self sharding.NodeID, publish func(map[sharding.NodeID]string)) *AddressBook {
	return &AddressBook{self: self, publish: publish}
}

// Joined takes what a seed told.
func (b *AddressBook) Joined(j *Joined) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told, b.first = j.Nodes, j.Addresses
	b.update()
}

// Learn takes a view of the metadata.
func (b *AddressBook) Learn(view *meta.View) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.view = view
	b.update()
}

// Hear takes all that gossip knows, and of those the members that have moved, as
// Hearsay found them.
func (b *AddressBook) Hear(peers, moved []membership.Peer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard, b.moved = peers, moved
	b.update()
}

func (b *AddressBook) update() {
	next := maps.Clone(b.first)
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
		for _, p := range b.heard {
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
		b.publish(maps.Clone(next))
	}
}

// Locate names the node of a replica.
func (b *AddressBook) Locate(shard sharding.ShardID, replica sharding.ReplicaID) (sharding.NodeID, bool) {
	b.mu.Lock()
	view, told := b.view, b.told
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

// Strange says of a replica that it is none of the shard as far as the metadata
// goes here. Of the metadata shard itself a newer one may lead, from which the
// node has to hear before it can know it.
func (b *AddressBook) Strange(shard sharding.ShardID, replica sharding.ReplicaID) bool {
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

// Address says where a node listens.
func (b *AddressBook) Address(node sharding.NodeID) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	address, ok := b.last[node]
	return address, ok
}

// GossipAt is where a node takes gossip that has given an address: one that
// began before the metadata knew where it serves other nodes gives that of its
// clients.
func (b *AddressBook) GossipAt(address string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.peersAt[address]; at != "" {
		return at
	}
	return address
}

// Addresses are those of all other nodes.
func (b *AddressBook) Addresses() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Values(b.last))
}

// Follow keeps the address book up to the metadata, and calls also with each
// view, until ctx ends.
func (b *AddressBook) Follow(ctx context.Context, m *Metadata, also func(*meta.View)) {
	var seen *meta.View
	for {
		changed := m.Changed()
		if view := m.View(); view != seen {
			seen = view
			b.Learn(view)
			also(view)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
