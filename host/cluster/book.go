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

// Book says where nodes listen and where replicas live, from all that a node
// has heard: the metadata, gossip, and what it was told when it joined. Of two
// addresses of a node that of its later start holds.
type Book struct {
	self    sharding.NodeID
	publish func(map[sharding.NodeID]string)

	mu       sync.Mutex
	told     map[sharding.ReplicaID]sharding.NodeID // of the metadata shard, when the node joined
	first    map[sharding.NodeID]string             // likewise
	view     *meta.View
	gossiped []membership.Peer
	last     map[sharding.NodeID]string
}

// NewBook makes a book that publishes the addresses of the other nodes
// whenever they change.
func NewBook(self sharding.NodeID, publish func(map[sharding.NodeID]string)) *Book {
	return &Book{self: self, publish: publish}
}

// Joined takes what a seed told.
func (b *Book) Joined(j *Joined) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told, b.first = j.Nodes, j.Addresses
	b.update()
}

// Learn takes a view of the metadata.
func (b *Book) Learn(view *meta.View) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.view = view
	b.update()
}

// Hear takes what gossip knows.
func (b *Book) Hear(peers []membership.Peer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gossiped = peers
	b.update()
}

func (b *Book) update() {
	next := maps.Clone(b.first)
	if next == nil {
		next = map[sharding.NodeID]string{}
	}
	start := map[sharding.NodeID]uint64{}
	if b.view != nil {
		for _, m := range b.view.Members() {
			next[m.Node], start[m.Node] = m.Address, m.Incarnation
		}
	}
	for _, p := range b.gossiped {
		if !p.Left && p.Incarnation >= start[p.ID] {
			next[p.ID], start[p.ID] = p.Address, p.Incarnation
		}
	}
	delete(next, b.self)
	if !maps.Equal(next, b.last) {
		b.last = next
		b.publish(maps.Clone(next))
	}
}

// Locate names the node of a replica.
func (b *Book) Locate(shard sharding.ShardID, replica sharding.ReplicaID) (sharding.NodeID, bool) {
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

// Address says where a node listens.
func (b *Book) Address(node sharding.NodeID) (string, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	address, ok := b.last[node]
	return address, ok
}

// Addresses are those of all other nodes.
func (b *Book) Addresses() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Values(b.last))
}

// Follow keeps the book up to the metadata, and calls also with each view,
// until ctx ends.
func (b *Book) Follow(ctx context.Context, m *Metadata, also func(*meta.View)) {
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
