package entityapi

import (
	"context"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Entities describes and lists entities.
type Entities interface {
	// Get describes one entity. For an id without events it returns the Status
	// "absent" and no error.
	Get(ctx context.Context, id sharding.EntityID) (EntityInfo, error)
	// List returns up to q.Limit entities of one shard after q.After, in the
	// order of their ids. It may return fewer entities than exist, with the id
	// after which to continue.
	List(ctx context.Context, shard sharding.ShardID, q EntityQuery) (EntityPage, error)
	// Shards is the number of data shards; they are numbered from 1.
	Shards() uint32
	// ShardOf returns the shard of an entity, or the metadata shard if this node
	// does not know the type.
	ShardOf(id sharding.EntityID) sharding.ShardID
	// ShardOfPrefix returns the shard of all entities of the type whose ids have
	// this prefix, if they are all in one shard.
	ShardOfPrefix(entityType, idPrefix string) (sharding.ShardID, bool)
}

// EntityInfo describes an entity.
type EntityInfo struct {
	Status           string // "absent", "active", "deleted" or "quarantined"
	Sequence         journal.Sequence
	SnapshotSequence journal.Sequence
	Shard            sharding.ShardID
	Node             sharding.NodeID // node that leads the shard; empty if no leader is known
	Module           journal.Digest  // module that serves the type; zero if there is none
	Resident         bool
	StateBytes       uint64
	LastError        string
	Faults           int       // consecutive faults
	QuarantinedUntil time.Time // zero unless quarantined
	Fuel             uint64    // fuel used by the commands of its last 65,536 events
	Timers           []journal.Timer
	PendingMessages  uint64        // messages sent but not acknowledged
	Actions          []AdminAction // actions of operators, newest first
}

// AdminAction is an action of an operator on an entity, other than a command.
type AdminAction struct {
	Kind       string // actionDelete or actionSkipTimer
	Timer      string // the skipped timer
	Command    journal.CommandID
	RecordedAt int64            // Unix nanoseconds of the shard's log clock
	Sequence   journal.Sequence // sequence of the entity after the action
}

// Kinds of AdminAction.
const (
	actionDelete    = "delete"
	actionSkipTimer = "skip-timer"
)

// EntityQuery selects entities of one shard.
type EntityQuery struct {
	Type         string
	IDPrefix     string
	ResidentOnly bool
	// Status selects entities that are "active", "deleted", "quarantined",
	// "resident", "passivated" or "unverified"; empty selects all except deleted
	// ones.
	Status string
	After  string // only ids greater than this one
	Limit  int    // at least 1
}

// EntityPage is a part of a listing.
type EntityPage struct {
	Entities []EntitySummary
	Next     string // the id after which to continue; empty at the end
}

// EntitySummary describes an entity in a listing.
type EntitySummary struct {
	ID       string
	Sequence journal.Sequence
	Status   string // "active", "deleted" or "quarantined"
	Resident bool
	Takeover *journal.Takeover // set for an "unverified" entity
}
