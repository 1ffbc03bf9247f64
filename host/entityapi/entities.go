package entityapi

import (
	"context"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Entities describes entities.
type Entities interface {
	// Get describes one entity; of an id without events it says Status
	// "absent" and does not fail.
	Get(ctx context.Context, id sharding.EntityID) (EntityInfo, error)
	// List returns up to q.Limit entities of one shard in the order of their
	// ids, after q.After. It may return less than there are, and where to go on.
	List(ctx context.Context, shard sharding.ShardID, q EntityQuery) (EntityPage, error)
	// Shards is the number of data shards; they are numbered from 1.
	Shards() uint32
	// ShardOf returns the shard of an entity; of a type that this node does not
	// know it is the metadata shard.
	ShardOf(id sharding.EntityID) sharding.ShardID
	// ShardOfPrefix returns the one shard of all entities of the type whose ids
	// begin so, where that is one.
	ShardOfPrefix(entityType, idPrefix string) (sharding.ShardID, bool)
}

// EntityInfo describes an entity.
type EntityInfo struct {
	Status           string // "absent", "active", "deleted" or "parked"
	Sequence         journal.Sequence
	SnapshotSequence journal.Sequence
	Shard            sharding.ShardID
	Node             sharding.NodeID // that leads the shard; empty while none is known
	Module           journal.Digest  // that serves the type; zero when none does
	Resident         bool
	StateBytes       uint64
	LastError        string
	Faults           int       // in a row
	ParkedUntil      time.Time // zero unless parked
	Fuel             uint64    // of the commands of its last 65,536 events
	Timers           []journal.Timer
	PendingMessages  uint64        // on their way
	Actions          []AdminAction // of operators, the newest first
}

// AdminAction is what an operator did to an entity beside its commands.
type AdminAction struct {
	Kind       string // ActionDelete or ActionSkipTimer
	Timer      string // that was skipped
	Command    journal.CommandID
	RecordedAt int64            // unix nanoseconds of the shard's clock
	Sequence   journal.Sequence // of the entity after it
}

// Kinds of actions.
const (
	ActionDelete    = "delete"
	ActionSkipTimer = "skip-timer"
)

// EntityQuery selects entities of one shard.
type EntityQuery struct {
	Type         string
	IDPrefix     string
	ResidentOnly bool
	// Status: only entities that are "active", "deleted", "parked", "resident",
	// "passivated" or "unproved"; empty is all but those that are deleted.
	Status string
	After  string // only ids greater than this
	Limit  int    // at least 1
}

// EntityPage is a part of a listing.
type EntityPage struct {
	Entities []EntitySummary
	Next     string // the id after which the listing goes on; empty at its end
}

// EntitySummary is one line of a listing.
type EntitySummary struct {
	ID       string
	Sequence journal.Sequence
	Status   string // "active", "deleted" or "parked"
	Resident bool
	Takeover *journal.Takeover // of an "unproved" one
}
