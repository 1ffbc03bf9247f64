package entity

import (
	"context"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Env is what a guest may know of the world during one call.
type Env struct {
	Now  int64  // unix nanoseconds of the log clock
	Seed uint64 // of the call's random stream
	// Deadline ends the call when it has passed; zero is none. The guest sees
	// nothing of it.
	Deadline time.Time
	// Fuel is what the call may spend; 0 is what the node allows.
	Fuel int64
	// Long, where it is set, is called once, during the call and on its
	// goroutine, when the call has spent what takes about half a millisecond.
	Long func()
}

// Guest is one instance of a module: a set of entities' states, by handle. It
// serves one goroutine. A call that returns an error other than a refusal
// leaves it unusable: the owner closes it. Returned bytes are valid until the
// next call. A call that was ended at its deadline fails with ErrDeadline, one
// that was interrupted with ErrStopped: neither is the guest's fault.
type Guest interface {
	// Load makes the state of a handle, initial or from a snapshot frame. ok is
	// false when the guest cannot read the snapshot or has no room.
	Load(typeIndex uint32, handle uint64, frames []byte) (ok bool, err error)
	Apply(handle uint64, frames []byte) error
	Handle(handle uint64, frames []byte, env Env) ([]byte, error)
	Query(handle uint64, frames []byte, env Env) ([]byte, error)
	// Snapshot returns the state's bytes.
	Snapshot(handle uint64) ([]byte, error)
	Drop(handle uint64) error
	MemoryBytes() int64
	// Fuel is what the last call cost; 0 where nothing is metered.
	Fuel() int64
	// Interrupt ends the call being made, or the next long one. It may be
	// called from any goroutine until Close.
	Interrupt()
	Close() error
}

// Type is an entity type bound to the module that serves it. It is immutable.
type Type struct {
	Name     string
	Index    uint32 // in the module's manifest
	Digest   journal.Digest
	Revision uint64 // of the binding, counts up
	// Commands and Queries are the listed names; nil lets the guest decide.
	Commands, Queries map[string]bool
	// Durable types keep their latest state instead of events: a command
	// stores the whole state, and loading takes the last one stored.
	Durable bool
	// Remember keeps the type's entities in memory, without being asked for.
	Remember bool
	// Singleton: the type has one entity, with the id manifest.SingletonID,
	// which is in memory whether or not it exists.
	Singleton bool
	// Transient types keep nothing: an entity is lost when it leaves memory.
	Transient bool
	// SnapshotEvery is the number of events between snapshots of an entity; 0
	// leaves it to the lane, a negative number takes none. SnapshotKeep is how
	// many of them stay, 0 for two, at most journal.MaxSnapshots.
	SnapshotEvery, SnapshotKeep int
	// Retain is that of journal.Snapshot: which records stay once a snapshot is
	// taken. 0 is all of them.
	Retain uint64
	// PassivateAfter is how long an entity may be idle in memory; 0 leaves it
	// to the lane, a negative one keeps it.
	PassivateAfter time.Duration
	// CommandFuel and QueryFuel are what calls may spend; 0 is what the node
	// allows.
	CommandFuel, QueryFuel int64
	// Rate bounds the commands of clients; nil does not.
	Rate *Rate
	// OwnInstances keeps the type's entities out of the instances of other types
	// and revisions: its instances are made with other bounds. FullAt is the
	// guest memory at which one of them is full, 0 leaves it to the lane.
	OwnInstances bool
	FullAt       int64
	// NoRoom reports that the node has no memory for another instance of the
	// type, so that entities should leave; nil never does.
	NoRoom func() bool
	// Limits, where they are set, take the place of the lane's for what a guest
	// answers.
	Limits *abi.Limits
	// Instantiate makes a new instance of the module.
	Instantiate func(context.Context) (Guest, error)
}

// Types finds the active binding of an entity type; nil when there is none.
// It must be safe for concurrent use and must not block.
type Types interface {
	Lookup(entityType string) *Type
}

// Journal is where a lane's decisions go. No method blocks.
type Journal interface {
	// Propose hands an entry to the shard's log. The journal owns data from
	// then on. An error is definite: the entry will never commit. The outcome
	// of an accepted entry arrives as Verdict, Dropped or a step-down.
	Propose(shard sharding.ShardID, fence sharding.Term, proposal uint64, data []byte) error
	// ReadIndex asks for proof that this node still leads the shard; it
	// arrives as ReadConfirmed with the token, or ReadFailed.
	ReadIndex(shard sharding.ShardID, token uint64) error
	// Busy reports that the journal's queues are near their bounds: deciding
	// more commands now would only have them refused.
	Busy() bool
}

// Histories reads what has been applied, whether or not it has reached the
// store, in order and verified: every record that ends at from or later (from 0
// all of them, those of commands before the first event too), and the chain's
// link after it. The record is valid during fn only.
type Histories interface {
	Read(ctx context.Context, shard sharding.ShardID, entity sharding.EntityID, from journal.Sequence,
		fn func(rec *journal.Record, after journal.Hash) error) error
	// Since reads the records after the place where a snapshot stands that
	// Snapshot has returned, which is known.
	Since(ctx context.Context, shard sharding.ShardID, entity sharding.EntityID, snapshot *journal.Snapshot,
		fn func(rec *journal.Record, after journal.Hash) error) error
	// Snapshot returns the entity's newest snapshot that was made by the module
	// before the sequence below, 0 for any; nil if there is none.
	Snapshot(ctx context.Context, shard sharding.ShardID, entity sharding.EntityID, module journal.Digest,
		below journal.Sequence) (*journal.Snapshot, error)
	// DueTimers returns the shard's timers that are due by then, the oldest
	// first, at most limit of those that skip does not refuse, and when the
	// next one after them is due, math.MaxInt64 for none.
	DueTimers(ctx context.Context, shard sharding.ShardID, by int64, limit int,
		skip func(entity sharding.EntityID, name string, due int64) bool) (due []journal.Timer, next int64, err error)
	// Received is the highest number that an entity has from a source.
	Received(shard sharding.ShardID, entity, source sharding.EntityID) (uint64, error)
	// PendingSends is how many sends of an entity were not acknowledged as of a
	// log index.
	PendingSends(shard sharding.ShardID, entity sharding.EntityID) (n, asOf uint64, err error)
	// SendTotals is what a shard has of sends. It does no I/O.
	SendTotals(shard sharding.ShardID) journal.SendTotals
}

// Info is what a lane knows of an entity.
type Info struct {
	Sequence journal.Sequence
	Status   string // "active", "loading", "parked"; "passive" when not resident
	Resident bool
	Module   journal.Digest
	Faults   int
	LastErr  string

	ParkedUntil time.Time // zero unless parked
}
