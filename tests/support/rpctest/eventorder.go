package rpctest

import (
	"context"

	"github.com/hostd/hostd/api/cursor"
	"github.com/hostd/hostd/host/entityapi/subscription"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// eventOrder presents the world as the logs of its shards. Each record is one
// entry.
type eventOrder struct {
	*World
	hasReplica func(sharding.ShardID) bool
}

// note appends a record to the log of its shard. The caller holds the mutex.
func (w *World) note(rec *journal.Record) {
	shard := sharding.ShardOf(rec.Entity, Shards)
	w.order[shard] = append(w.order[shard], rec)
	for c := range w.shardWatchers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// fingerprintBefore returns the fingerprint of the last record with events
// before a position.
func fingerprintBefore(log []*journal.Record, at cursor.Position) uint32 {
	last := min(uint64(len(log)), at.Index)
	if at.Events == 0 {
		last = min(last, max(at.Index, 1)-1)
	}
	var chain journal.Chain
	for i := last; i > 0; i-- {
		if rec := log[i-1]; len(rec.Events) > 0 {
			return chain.After(rec).Fingerprint()
		}
	}
	return journal.Hash{}.Fingerprint()
}

// Rows implements subscription.EventOrder.
func (o eventOrder) Rows(ctx context.Context, shard sharding.ShardID, q subscription.OrderQuery, fn func(subscription.OrderRow) error) (cursor.Position, error) {
	o.mu.Lock()
	log := o.order[shard]
	o.mu.Unlock()
	if q.From.Index <= uint64(len(log))+1 {
		if history := fingerprintBefore(log, q.From); q.From.History != 0 && q.From.History != history {
			return q.From, journal.ErrOtherHistory
		}
	}
	end := min(uint64(len(log)), q.UpTo)
	for i := max(q.From.Index, 1); i <= end; i++ {
		rec := log[i-1]
		if rec.Entity.Type != q.Type || len(rec.Events) == 0 {
			continue
		}
		if err := fn(subscription.OrderRow{At: journal.Position{Index: i}, Entity: rec.Entity, First: rec.Expected + 1, Events: len(rec.Events), History: fingerprintBefore(log, cursor.Position{Index: i + 1})}); err != nil {
			return q.From, err
		}
	}
	next := cursor.Position{Index: max(end+1, q.From.Index)}
	next.History = fingerprintBefore(log, next)
	return next, ctx.Err()
}

// AppliedIndex implements subscription.EventOrder.
func (o eventOrder) AppliedIndex(shard sharding.ShardID) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := uint64(len(o.order[shard]))
	return n - min(n, o.unapplied)
}

// SetUnapplied makes every node lag behind: it has not applied the last entries
// of each shard.
func (w *World) SetUnapplied(entries uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unapplied = entries
}

// CommittedIndex implements subscription.EventOrder.
func (o eventOrder) CommittedIndex(_ context.Context, shard sharding.ShardID) (uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return uint64(len(o.order[shard])), nil
}

// HasReplica implements subscription.EventOrder.
func (o eventOrder) HasReplica(shard sharding.ShardID) bool { return o.hasReplica(shard) }

// Watch implements subscription.EventOrder; it wakes for every shard.
func (o eventOrder) Watch([]sharding.ShardID) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.shardWatchers[c] = struct{}{}
	return c, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.shardWatchers, c)
	}
}

// Cluster implements subscription.EventOrder.
func (o eventOrder) Cluster() string { return "world" }
