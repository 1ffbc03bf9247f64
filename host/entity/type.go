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

// Env is a guest's environment during one call.
type Env struct {
	Now  int64  // log clock in unix nanoseconds
	Seed uint64 // seed of the call's random stream
	// Deadline ends the call; zero means none. The guest cannot see it.
	Deadline time.Time
	// Fuel is the budget of the call; 0 means the node's limit.
	Fuel int64
	// Counts counts a command during a rollout. It may be nil.
	Counts *trial.Counter
	// Long is notified once if the call runs long: on the goroutine of the
	// call, once the call has spent fuel worth about half a millisecond. It may
	// be nil.
	Long preempter
}

// preempter lets its executor continue without a call that runs long.
type preempter interface{ Preempt() }

// Guest is an instance of a module, with the states of entities by handle. It
// is used by one goroutine at a time. Returned bytes are valid until the next
// call.
//
// After an error the Guest is unusable and the owner closes it, except after
// abi.ErrOverLimit, which means that the result was too large. A call that
// was ended at its deadline fails with request.ErrDeadline, an interrupted
// call with request.ErrStopped; neither is the guest's fault.
type Guest interface {
	// About sets the entity of the following calls. It is logged with the
	// guest's output.
	About(e sharding.EntityID)
	// Load creates the state of a handle: the initial state, or the state in a
	// snapshot frame. ok is false if the guest cannot read the snapshot or has
	// no room.
	Load(typeIndex uint32, handle uint64, frames []byte) (ok bool, err error)
	Apply(handle uint64, frames []byte) error
	Handle(handle uint64, frames []byte, env Env) ([]byte, error)
	Query(handle uint64, frames []byte, env Env) ([]byte, error)
	// Snapshot returns the encoded state.
	Snapshot(handle uint64) ([]byte, error)
	Drop(handle uint64) error
	MemoryBytes() int64
	// Fuel is the amount that the last call has spent; 0 if fuel is not metered.
	Fuel() int64
	// Interrupt ends the current call. If there is none, it ends the next call
	// that runs long. It may be called from any goroutine until Close.
	Interrupt()
	Close() error
}

// Type is an activation: an entity type and the module that serves it. It is
// immutable.
type Type struct {
	Name     string
	Index    uint32 // index in the module's manifest
	Digest   journal.Digest
	Revision uint64 // revision of the activation; a later activation has a higher revision
	CanaryStage
	Snapshots ForeignSnapshots // snapshots of other modules that the module loads
	TypeInputs
	TypeRoutes
	// Durable types keep their latest state instead of events: a command stores
	// the whole state, and a load reads the last one.
	Durable bool
	// AlwaysOn makes the type always-on: its entities are in memory without
	// requests.
	AlwaysOn bool
	// Singleton types have one entity, with the id manifest.SingletonID. That
	// entity is in memory even if it does not exist yet.
	Singleton bool
	// Transient types store nothing: an entity is lost when it leaves memory.
	Transient bool
	// Workflow types have runs. The only snapshots of a run are its own
	// checkpoints, and its messages begin new chains. A message to a run whose
	// guest faults waits for a module that can continue the run.
	Workflow bool
	// SnapshotEvery is the number of events between snapshots of an entity; 0
	// leaves it to the executor, and a negative number disables snapshots.
	// SnapshotKeep is the number of snapshots kept, at most
	// journal.MaxSnapshots; 0 means two.
	SnapshotEvery, SnapshotKeep int
	// Retain has the meaning of journal.Snapshot.Retain: which records are kept
	// after a snapshot. 0 keeps all.
	Retain uint64
	// PassivateAfter is how long an entity may be idle in memory; 0 leaves it
	// to the executor, and a negative value keeps it forever.
	PassivateAfter time.Duration
	// CommandFuel and QueryFuel limit the fuel of calls; 0 means the node's
	// limit.
	CommandFuel, QueryFuel int64
	// Rate limits the commands of the type, FuelBudget their fuel and
	// BytesBudget the bytes of their records. Nil means no limit.
	Rate                    *Rate
	FuelBudget, BytesBudget *Budget
	InstanceRoom
	// Limits, if set, replace the executor's limits for guests' outputs.
	Limits *abi.Limits
	// Counts counts the module's calls during a rollout. It may be nil.
	Counts *trial.Counter
	// Instantiate creates an instance of the module.
	Instantiate func(context.Context) (Guest, error)
}

// ForeignSnapshots lists the snapshots of other modules that a type's module
// loads.
type ForeignSnapshots struct {
	// Modules lists earlier modules whose snapshots the type's module loads like
	// its own.
	Modules []journal.Digest
	// IfTruncated lists earlier modules whose snapshots the type's module loads
	// if the first records of an entity are gone and no better snapshot is left.
	// The compatibility check has verified that the module reads the states of
	// all such entities.
	IfTruncated []journal.Digest
	// Versions maps earlier modules to the state version in their snapshots, if
	// the type's module migrates states. The state version of a module that is
	// not listed is unknown, and the snapshots of that module are not loaded.
	Versions map[journal.Digest]int
}

// SnapshotUse returns how the type's module may use a snapshot of the given
// module. truncated reports that the first records of the entity are gone. A
// snapshot of a module without a compatibility check is never loaded as a
// state, because it may load without an error and lose data. A durable type
// uses only the position of such a snapshot, and takes the state from the
// record there.
func (t *Type) SnapshotUse(module journal.Digest, truncated bool) journal.SnapshotRank {
	switch {
	case t.Workflow && module == journal.NoModule:
		return journal.SnapshotLoads
	case t.Workflow:
		return journal.SnapshotUnread
	case module != t.Digest && !t.Durable && t.States.Migrates() && t.Snapshots.Versions[module] == 0:
		return journal.SnapshotUnread
	case t.loadsSnapshotsOf(module):
		return journal.SnapshotLoads
	case truncated && (t.Durable || slices.Contains(t.Snapshots.IfTruncated, module)):
		return journal.SnapshotLastResort
	}
	return journal.SnapshotUnread
}

// SnapshotVersion returns the state version in a module's snapshots, or 0 if it
// is the type's own version or unknown.
func (t *Type) SnapshotVersion(module journal.Digest) int { return t.Snapshots.Versions[module] }

// loadsSnapshotsOf reports whether the type's module can load every snapshot
// that the given module made.
func (t *Type) loadsSnapshotsOf(module journal.Digest) bool {
	return module == t.Digest || slices.Contains(t.Snapshots.Modules, module)
}

// InstanceRoom is the memory available to the instances of a type.
type InstanceRoom struct {
	// OwnInstances keeps the type's entities out of the instances of other types
	// and revisions, because its instances have different limits. FullAt is the
	// guest memory at which an instance of the type is full; 0 leaves the size
	// to the executor.
	OwnInstances bool
	FullAt       int64
	// Memory is the memory that the instances of the type share on the node. If
	// that memory has no room for another instance, entities must be evicted.
	// Memory may be nil.
	Memory memoryRoom
}

// memoryRoom is memory for instances.
type memoryRoom interface{ HasRoom() bool }

// TypeRoutes are the sources and destinations of a type's messages, and the
// formats of its states.
type TypeRoutes struct {
	// States has the versions of the states that a Durable type stores, and of
	// the states in snapshots.
	States manifest.States
	// Internal has the commands that only entities and timers may send.
	Internal map[string]bool
	// RecordPrincipal stores the caller of a command in its record.
	RecordPrincipal bool
	// MessagesTo and MessagesFrom are the patterns, for abi.MatchesType, of the
	// types that the entities may send to and accept messages from. Nil means
	// any.
	MessagesTo, MessagesFrom []string
	// Owners restrict messages. It may be nil.
	Owners owners
}

// owners knows the owners of entity types.
type owners interface {
	// IsForeign reports whether a type belongs to a different owner. It must not
	// block.
	IsForeign(entityType string) bool
}

// errUnlistedSend means that an output sends to an entity type that the
// manifest of the sender's type does not list.
var errUnlistedSend = errors.New("send to an unlisted type")

// CheckMessages returns errUnlistedSend if the output sends to an entity that
// the type may not send to. An entity may always send to itself.
func (w *TypeRoutes) CheckMessages(from sharding.EntityID, out *abi.Output) error {
	if w.MessagesTo == nil || out.Rejected {
		return nil
	}
	for i := range out.Sends {
		s := &out.Sends[i]
		itself := string(s.EntityType) == from.Type && string(s.EntityID) == from.ID
		if !itself && !abi.MatchesType(w.MessagesTo, s.EntityType) {
			return fmt.Errorf("%w: it sends to entity type %s, which its manifest does not list in sends", errUnlistedSend, s.EntityType)
		}
	}
	return nil
}

// accepts reports whether an entity accepts messages from another entity.
// Messages from itself, which include answers that a node sends in its name,
// are always accepted. If the type's manifest lists no types, it accepts
// messages of all types that have no other owner.
func (w *TypeRoutes) accepts(to, from sharding.EntityID) bool {
	if to == from {
		return true
	}
	if w.MessagesFrom == nil {
		return w.Owners == nil || !w.Owners.IsForeign(from.Type)
	}
	return abi.MatchesType(w.MessagesFrom, from.Type)
}

// Types finds the activation of an entity type, or nil if there is none. It
// must be safe for concurrent use and must not block.
type Types interface {
	Lookup(entityType string) *Type
}

// guestPool identifies the instances of an executor that may hold a type's
// entities: those of a module, or those of one revision of a type with
// OwnInstances.
type guestPool struct {
	Module   journal.Digest
	Revision uint64 // 0 if the types of the module share instances
}

// pool returns the pool of the type's entities.
func (t *Type) pool() guestPool {
	if t.OwnInstances {
		return guestPool{t.Digest, cmp.Or(t.Made, t.Revision)}
	}
	return guestPool{Module: t.Digest}
}

// budgetWait returns how long commands of the type must wait because earlier
// commands exceeded a budget, and the name of that limit.
func (t *Type) budgetWait(now int64) (wait time.Duration, limit string) {
	fuel, bytes := t.FuelBudget.Wait(now), t.BytesBudget.Wait(now)
	if bytes > fuel {
		return bytes, request.LimitBytes
	}
	return fuel, request.LimitFuel
}

// checkID returns an error if the type is a singleton and the id is not that of
// its only entity.
func (t *Type) checkID(id sharding.EntityID) error {
	if t.Singleton && id.ID != manifest.SingletonID {
		return fmt.Errorf("%w: entity type %s is a singleton, and the id of its entity is %q", sharding.ErrInvalidName, id.Type, manifest.SingletonID)
	}
	return nil
}

// Mode returns the kind of outputs that a command of the type may have.
func (t *Type) Mode() abi.Mode {
	switch {
	case t.Transient:
		return abi.HandleTransient
	case t.Durable:
		return abi.HandleState
	}
	return abi.HandleEvents
}

// hasCommand reports whether the type may have a command of that name.
func (t *Type) hasCommand(name string) bool { return t.Commands == nil || t.Commands[name] }

// hasQuery reports whether the type may have a query of that name.
func (t *Type) hasQuery(name string) bool { return t.Queries == nil || t.Queries[name] }

// limitsOr returns the limits for guests' outputs: the type's own limits if
// it has any, and otherwise common, the limits of the executor.
func (t *Type) limitsOr(common *abi.Limits) *abi.Limits {
	if t.Limits != nil {
		return t.Limits
	}
	return common
}
