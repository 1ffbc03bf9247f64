package subscription

import (
	"context"

	"github.com/hostd/hostd/api/cursor"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// EventOrder reads the events of shards in the order of their logs. A replica
// applies only committed entries, so any replica can be read.
type EventOrder interface {
	// Rows calls fn with the place of each record that q selects in the shard's
	// order, from the entry of q.From on. It returns the position at which to
	// continue: before the first unread entry, with the fingerprint of the
	// history up to that position. An error of fn stops Rows and is returned
	// unchanged. Rows fails with journal.ErrOtherHistory if the record before
	// q.From in the log does not match q.From.History.
	Rows(ctx context.Context, shard sharding.ShardID, q OrderQuery, fn func(OrderRow) error) (next cursor.Position, err error)
	// AppliedIndex returns the index of the last entry of the shard that this node
	// has applied, 0 if there is none.
	AppliedIndex(shard sharding.ShardID) uint64
	// CommittedIndex returns the index of the last committed entry of a shard that
	// this node leads, at the time of the call or later. It waits until a quorum
	// confirms the leadership, or ctx ends.
	CommittedIndex(ctx context.Context, shard sharding.ShardID) (uint64, error)
	// HasReplica reports whether this node should have a replica of the shard.
	HasReplica(shard sharding.ShardID) bool
	// Watch returns a channel that receives a value, without blocking the sender
	// and at most one at a time, after records of the shards have become
	// readable. stop ends the watch and must be called once.
	Watch(shards []sharding.ShardID) (changed <-chan struct{}, stop func())
	// Cluster identifies the cluster. Positions of a different cluster are not
	// valid for this cluster.
	Cluster() string
}

// OrderQuery selects records of a shard.
type OrderQuery struct {
	Type string
	Tag  string // tag that one of the record's events must have; empty selects all records
	From cursor.Position
	UpTo uint64 // the last index, inclusive
}

// OrderRow is the place of a record in its shard's order.
type OrderRow struct {
	At     journal.Position
	Entity sharding.EntityID
	First  journal.Sequence // sequence of the record's first event
	Events int              // number of the record's events that match the query
	// History is the fingerprint of the record; 0 if unknown.
	History uint32
}
