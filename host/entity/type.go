package entity

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/host/request"
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
	// Counts is told of a command while it is watched.
	Counts *trial.Counter
	// Long, where it is set, is called once, during the call and on its
	// goroutine, when the call has spent what takes about half a millisecond.
	Long func()
}

// Guest is one instance of a module: a set of entities' states, by handle. It
// serves one goroutine. A call that returns an error other than a refusal
// leaves it unusable, and the owner closes it, unless it is abi.ErrOverLimit:
// then the answer was too large. Returned bytes are valid until the
// next call. A call that was ended at its deadline fails with
// request.ErrDeadline, one that was interrupted with request.ErrStopped:
// neither is the guest's fault.
type Guest interface {
	// About says which entity the calls from now on are about, for people who
	// read what the guest writes.
	About(e sharding.EntityID)
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
	CanaryStage
	Snapshots ForeignSnapshots // of other modules, that it loads
	TypeInputs
	TypeRoutes
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
	// leaves it to the executor, a negative number takes none. SnapshotKeep is how
	// many of them stay, 0 for two, at most journal.MaxSnapshots.
	SnapshotEvery, SnapshotKeep int
	// Retain is that of journal.Snapshot: which records stay once a snapshot is
	// taken. 0 is all of them.
	Retain uint64
	// PassivateAfter is how long an entity may be idle in memory; 0 leaves it
	// to the executor, a negative one keeps it.
	PassivateAfter time.Duration
	// CommandFuel and QueryFuel are what calls may spend; 0 is what the node
	// allows.
	CommandFuel, QueryFuel int64
	// Rate bounds the commands of the type, FuelBudget what they compute and
	// BytesBudget the bytes of their records; nil does not.
	Rate                    *Rate
	FuelBudget, BytesBudget *Budget
	InstanceRoom
	// Limits, where they are set, take the place of the executor's for what a guest
	// answers.
	Limits *abi.Limits
	// Counts are what the module does of the type; nil counts nothing.
	Counts *trial.Counter
	// Instantiate makes a new instance of the module.
	Instantiate func(context.Context) (Guest, error)
}

// ForeignSnapshots are those of other modules that a type's module loads.
type ForeignSnapshots struct {
	// Of are modules before it whose snapshots it loads as its own.
	Of []journal.Digest
	// OfTruncated are modules before it whose snapshots it loads if the first
	// records of an entity are gone and no better snapshot is left: it was proved
	// on all such entities that it reads their states.
	OfTruncated []journal.Digest
	// Versions are those of the states in them if the module reads other versions
	// than its own. Those of a module that is not there are not known, and not
	// loaded.
	Versions map[journal.Digest]int
}

// SnapshotUse is what the type's module does with snapshots. That of a module
// which nobody has compared it with is never a state: it may load without an
// error and lose what it does not name in the same way. A durable type takes
// from it where the history goes on, and the state from the record there.
func (t *Type) SnapshotUse(module journal.Digest, truncated bool) journal.SnapshotRank {
	switch {
	case module != t.Digest && !t.Durable && t.States.Migrates() && t.Snapshots.Versions[module] == 0:
		return journal.SnapshotUnread
	case t.LoadsSnapshotsOf(module):
		return journal.SnapshotLoads
	case truncated && (t.Durable || slices.Contains(t.Snapshots.OfTruncated, module)):
		return journal.SnapshotLastResort
	}
	return journal.SnapshotUnread
}

// SnapshotVersion is the version of the states in a module's snapshots; 0 if
// that is the one of the type's own, or none is known.
func (t *Type) SnapshotVersion(module journal.Digest) int { return t.Snapshots.Versions[module] }

// LoadsSnapshotsOf reports that the type's module loads all snapshots of a
// module.
func (t *Type) LoadsSnapshotsOf(module journal.Digest) bool {
	return module == t.Digest || slices.Contains(t.Snapshots.Of, module)
}

// InstanceRoom is what memory the instances of a type have.
type InstanceRoom struct {
	// OwnInstances keeps the type's entities out of the instances of other types
	// and revisions: its instances are made with other bounds. FullAt is the
	// guest memory at which one of them is full, 0 leaves it to the lane.
	OwnInstances bool
	FullAt       int64
	// NoRoom reports that the node has no memory for another instance of the
	// type, so that entities should leave; nil never does.
	NoRoom func() bool
}

// TypeRoutes are where commands of a type's entities come from, and go to, and in
// which forms their states are kept.
type TypeRoutes struct {
	// States are the versions of the states of a Durable type, and of those in
	// snapshots.
	States manifest.States
	// Internal are the commands that come from entities and timers only.
	Internal map[string]bool
	// RecordPrincipal: who made a command is kept with its record.
	RecordPrincipal bool
	// MessagesTo and MessagesFrom are the types that the entities may send to, and
	// take messages from, as abi.MatchesType reads them.
	MessagesTo, MessagesFrom []string
	// IsForeign reports that a type is another owner's, where that decides; nil
	// for none. It must not block.
	IsForeign func(entityType string) bool
}

// ErrUnlistedSend: an output sends to an entity type that the manifest of the
// sender's type does not name.
var errUnlistedSend = errors.New("send to an unlisted type")

// CheckMessages refuses an output in which an entity of the type sends to one
// that it may not send to, with ErrUnlistedSend. It may always send to itself.
func (w *TypeRoutes) CheckMessages(from sharding.EntityID, out *abi.Output) error {
	if w.MessagesTo == nil || out.Rejected {
		return nil
	}
	for i := range out.Sends {
		s := &out.Sends[i]
		itself := string(s.EntityType) == from.Type && string(s.EntityID) == from.ID
		if !itself && !abi.MatchesType(w.MessagesTo, s.EntityType) {
			return fmt.Errorf("%w: it sends to entity type %s, which its manifest does not name in sends", errUnlistedSend, s.EntityType)
		}
	}
	return nil
}

// Accepts reports whether an entity takes messages of another one. It always
// takes its own, and what a node answers in its name. If the type's manifest
// names no types, it takes messages of all but those of other owners.
func (w *TypeRoutes) Accepts(to, from sharding.EntityID) bool {
	if to == from {
		return true
	}
	if w.MessagesFrom == nil {
		return w.IsForeign == nil || !w.IsForeign(from.Type)
	}
	return abi.MatchesType(w.MessagesFrom, from.Type)
}

// Types finds the active binding of an entity type; nil when there is none.
// It must be safe for concurrent use and must not block.
type Types interface {
	Lookup(entityType string) *Type
}

// guestPool names the instances of an executor that may hold the entities of a type:
// those of a module, or of the revision of a type that has instances of its
// own.
type guestPool struct {
	Module   journal.Digest
	Revision uint64 // 0: the types of the module share them
}

// Pool is where the type's entities are held.
func (t *Type) Pool() guestPool {
	if t.OwnInstances {
		return guestPool{t.Digest, cmp.Or(t.Made, t.Revision)}
	}
	return guestPool{Module: t.Digest}
}

// Owes says for how long the commands of the type wait for what others of it
// have spent, and which of its limits that was.
func (t *Type) Owes(now int64) (wait time.Duration, limit string) {
	fuel, bytes := t.FuelBudget.Wait(now), t.BytesBudget.Wait(now)
	if bytes > fuel {
		return bytes, request.LimitBytes
	}
	return fuel, request.LimitFuel
}

// CheckID refuses an entity that a singleton type does not have.
func (t *Type) CheckID(id sharding.EntityID) error {
	if t.Singleton && id.ID != manifest.SingletonID {
		return fmt.Errorf("%w: entity type %s has one entity, whose id is %q", sharding.ErrInvalidName, id.Type, manifest.SingletonID)
	}
	return nil
}

// Mode is which outputs a command of the type may have.
func (t *Type) Mode() abi.Mode {
	switch {
	case t.Transient:
		return abi.HandleTransient
	case t.Durable:
		return abi.HandleState
	}
	return abi.HandleEvents
}

// HasCommand reports that the type may have a command of that name.
func (t *Type) HasCommand(name string) bool { return t.Commands == nil || t.Commands[name] }

// HasQuery reports that the type may have a query of that name.
func (t *Type) HasQuery(name string) bool { return t.Queries == nil || t.Queries[name] }

// LimitsOr are what a guest's answers on the type are held to; common are the
// executor's.
func (t *Type) LimitsOr(common *abi.Limits) *abi.Limits {
	if t.Limits != nil {
		return t.Limits
	}
	return common
}
