package modules

import (
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// CompatibilityQuery selects the entities and the module of a compatibility check.
type CompatibilityQuery struct {
	Shard      sharding.ShardID
	EntityType string
	Digest     journal.Digest
	Sample     int                 // maximum number of replayed entities
	Draw       func(below int) int // returns a random number below its argument
	Budget     time.Duration       // time limit for the events, and again for the sample
	// PresenceOnly requests only Compatibility.Present. Digest is ignored.
	PresenceOnly bool
	// ExcludeWrittenBy selects, instead of a sample, all entities except those
	// whose newest event was written by one of these modules.
	ExcludeWrittenBy []journal.Digest
	// Initial is the part of the type that modules other than those in
	// ExcludeWrittenBy served first, and Current is the part that those other
	// modules serve now. Zero means all.
	Initial, Current meta.Part
	// TruncatedOnly selects all entities whose first events are gone and of
	// which the module has no snapshot of its own. From the remaining snapshot,
	// the module must compute the same state as the serving module. If
	// ExcludeWrittenBy is set too, TruncatedOnly excludes these entities instead
	// of selecting them. IncludeSnapshots says that the module will load all
	// snapshots of the serving module, so that entities with all their events
	// are compared too. Current is then the part of a rollout that is taken
	// back.
	TruncatedOnly, IncludeSnapshots bool
	// Paced and AcceptDifferences apply to TruncatedOnly. Paced limits the rate
	// as for a verification, and works on a shard until everything was compared
	// or an incompatibility was found. AcceptDifferences means that an entity
	// with a differing state is compared only once. With PresenceOnly, the query
	// asks only whether TruncatedOnly selects any entity.
	Paced, AcceptDifferences bool
	// MinRevision delays the check until the shard's log has reached this
	// revision of the activations.
	MinRevision uint64
}

// Compatibility is the result of a compatibility check.
type Compatibility struct {
	Missing        []MissingEvents // missing event types
	Faults         []ReplayFault
	FaultyEntities int  // number of failing entities, including those not in Faults
	Entities       int  // number of replayed entities
	Complete       bool // all stored events were checked
	Present        bool // entities exist that are not deleted
	// Results for CompatibilityQuery.TruncatedOnly: the number of entities with
	// a differing state and the first of them, the modules that made the
	// snapshots from which the checked entities begin, and the number of
	// entities that the serving module cannot read either.
	DifferingEntities  int
	Differences        []ReplayFault
	SnapshotDigests    []journal.Digest
	UnreadableEntities int
}

// AddFault counts an entity on which the module fails.
func (c *Compatibility) AddFault(f ReplayFault) {
	if c.FaultyEntities++; len(c.Faults) < MaxReplayFaults {
		c.Faults = append(c.Faults, f)
	}
}

// AddDifference counts an entity for which the module computes a different state.
func (c *Compatibility) AddDifference(f ReplayFault) {
	if c.DifferingEntities++; len(c.Differences) < MaxReplayFaults {
		c.Differences = append(c.Differences, f)
	}
}

// MissingEvents are stored events of a type that the manifest does not list.
type MissingEvents struct {
	EventType string
	Count     uint64
}

// ReplayFault is an entity on which the module fails.
type ReplayFault struct {
	EntityID  string
	At        journal.Sequence
	EventType string
	Message   string
}

// MaxReplayFaults bounds the faults in an answer, and MaxMissingEvents the event
// types.
const MaxReplayFaults, MaxMissingEvents = 100, 1024
