package subscription

import (
	"context"

	"github.com/hostd/hostd/api/cursor"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// EventOrder reads the events of shards in the order of their logs. What a
// replica has applied is committed, so any replica's is good.
type EventOrder interface {
	// Rows calls fn with the place of each record of q in the shard's order,
	// from the entry of q.From on, and returns where to continue: before the
	// first entry that it has not read, with the history up to there. An error
	// of fn ends it and is returned as it is. It fails with
	// journal.ErrOtherHistory if the log has another record before q.From than
	// q.From.History says.
	Rows(ctx context.Context, shard sharding.ShardID, q OrderQuery, fn func(OrderRow) error) (next cursor.Position, err error)
	// Applied is the index of the last entry that this node has applied of the
	// shard, 0 where it has none.
	Applied(shard sharding.ShardID) uint64
	// Committed is the index of the last entry that was committed at the call,
	// or later, of a shard that this node leads. It waits until a quorum has
	// said that it does, no longer than ctx.
	Committed(ctx context.Context, shard sharding.ShardID) (uint64, error)
	// HasReplica reports whether this node is to have a replica of the shard.
	HasReplica(shard sharding.ShardID) bool
	// Watch makes a channel that gets a value, without blocking and at most
	// one at a time, after records of the shards have become readable. stop
	// ends it and is called once.
	Watch(shards []sharding.ShardID) (changed <-chan struct{}, stop func())
	// Cluster names the cluster: positions of another are not for this one.
	Cluster() string
}

// OrderQuery selects records of a shard.
type OrderQuery struct {
	Type string
	Tag  string // on any of the record's events; empty is all
	From cursor.Position
	UpTo uint64 // the last index
}

// OrderRow is a record's place in its shard's order.
type OrderRow struct {
	At     journal.Position
	Entity sharding.EntityID
	First  journal.Sequence // of its events
	Events int              // how many of them are asked for
	// History is the fingerprint of the record; 0: unknown.
	History uint32
}
