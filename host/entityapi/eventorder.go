package entityapi

import (
	"context"

	"github.com/hostd/hostd/api/cursor"
	"github.com/hostd/hostd/host/entityapi/subscription"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// eventOrder reads the events of whole shards from this node's journal.
type eventOrder struct{ *Parts }

// Rows implements subscription.EventOrder.
func (s eventOrder) Rows(ctx context.Context, shard sharding.ShardID, q subscription.OrderQuery, fn func(subscription.OrderRow) error) (cursor.Position, error) {
	var failed error
	from := eventlog.OrderRange{UpTo: q.UpTo, Fingerprint: q.From.History, From: eventlog.OrderPlace{
		At: journal.Position{Index: q.From.Index, Ordinal: q.From.Ordinal}, Behind: q.From.Events > 0,
	}}
	upTo, history, err := s.Machine.ReadOrderRange(ctx, shard, from, func(row *store.OrderRow) error {
		if string(row.Type) != q.Type {
			return nil
		}
		events := row.Events
		if q.Tag != "" {
			events = countTagged(row, q.Tag)
		}
		if events == 0 {
			return nil
		}
		failed = fn(subscription.OrderRow{At: row.At, Entity: sharding.EntityID{Type: q.Type, ID: string(row.ID)}, First: row.First, Events: events, History: row.Fingerprint})
		return failed
	})
	if failed != nil {
		return q.From, failed
	}
	return cursor.Position{Index: upTo + 1, History: history}, err
}

// countTagged counts the events of a row that have a tag.
func countTagged(row *store.OrderRow, tag string) (events int) {
	var last journal.Sequence
	row.Tags(func(seq journal.Sequence, t []byte) {
		if seq != last && string(t) == tag {
			events++
			last = seq
		}
	})
	return events
}

// AppliedIndex implements subscription.EventOrder.
func (s eventOrder) AppliedIndex(shard sharding.ShardID) uint64 {
	index, _ := s.Machine.Applied(shard)
	return index
}

// CommittedIndex implements subscription.EventOrder.
func (s eventOrder) CommittedIndex(ctx context.Context, shard sharding.ShardID) (uint64, error) {
	out, err := s.Commits.Confirm(ctx, []sharding.ShardID{shard})
	return out[0], err
}

// HasReplica implements subscription.EventOrder. A replica that has stopped
// does not count, because it does not apply further entries.
func (s eventOrder) HasReplica(shard sharding.ShardID) bool {
	return s.Leaders.HasReplica(shard) && s.Leaders.StopReason(shard) == sharding.NotStopped
}

// Watch implements subscription.EventOrder.
func (s eventOrder) Watch(shards []sharding.ShardID) (<-chan struct{}, func()) {
	return watch(func() (<-chan struct{}, func(), error) { return s.Machine.SubscribeOrder(shards) })
}

// Cluster implements subscription.EventOrder.
func (s eventOrder) Cluster() string { return s.Parts.ClusterID }
