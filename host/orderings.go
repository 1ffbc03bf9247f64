package host

import (
	"context"

	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// orderings reads whole shards of this node's journal.
type orderings struct{ n *Node }

// Rows implements rpc.Orderings.
func (s orderings) Rows(ctx context.Context, shard sharding.ShardID, q rpc.OrderQuery, fn func(rpc.OrderRow) error) (uint64, error) {
	var failed error
	upTo, err := s.n.machine.ReadOrder(ctx, shard, max(q.From, 1)-1, func(row *store.OrderRow) error {
		if string(row.Type) != q.Type {
			return nil
		}
		events := row.Events
		if q.Tag != "" {
			events = tagged(row, q.Tag)
		}
		if events == 0 {
			return nil
		}
		failed = fn(rpc.OrderRow{At: row.At, Entity: sharding.EntityID{Type: q.Type, ID: string(row.ID)}, First: row.First, Events: events})
		return failed
	})
	if failed != nil {
		return q.From, failed
	}
	return upTo + 1, err
}

// tagged counts the events of a row that have a tag.
func tagged(row *store.OrderRow, tag string) (events int) {
	var last journal.Sequence
	row.Tags(func(seq journal.Sequence, t []byte) {
		if seq != last && string(t) == tag {
			events++
			last = seq
		}
	})
	return events
}

// Applied implements rpc.Orderings.
func (s orderings) Applied(shard sharding.ShardID) uint64 {
	index, _ := s.n.machine.Applied(shard)
	return index
}

// Committed implements rpc.Orderings.
func (s orderings) Committed(ctx context.Context, shard sharding.ShardID) (uint64, error) {
	out, err := s.n.part.Confirm(ctx, []sharding.ShardID{shard})
	return out[0], err
}

// Held implements rpc.Orderings.
func (s orderings) Held(shard sharding.ShardID) bool { return s.n.leaders.at(shard).here }

// Watch implements rpc.Orderings.
func (s orderings) Watch(shards []sharding.ShardID) (<-chan struct{}, func()) {
	return watch(func() (<-chan struct{}, func(), error) { return s.n.machine.SubscribeOrder(shards) })
}

// Cluster implements rpc.Orderings.
func (s orderings) Cluster() string { return s.n.id.Cluster }
