package modules

import (
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// FitQuery selects the entities and the module of a compatibility check.
type FitQuery struct {
	Shard      sharding.ShardID
	EntityType string
	Digest     journal.Digest
	Sample     int                 // maximum number of replayed entities
	Draw       func(below int) int // a random number
	Budget     time.Duration       // for the events, and again for the sample
	// PresenceOnly requests only Fit.Present. Digest is ignored.
	PresenceOnly bool
	// WrittenNotBy selects all entities whose newest event was written by none of
	// these modules, instead of a sample.
	WrittenNotBy []journal.Digest
	// First is the part of the type that other modules than these served first,
	// and Within the part that they serve now. Zero means all.
	First, Within meta.Part
	// Truncated selects all entities whose first events are gone and of which the
	// module has no snapshot of its own. From the remaining snapshot, the module's
	// state is compared with that of the module that serves the entity. Together
	// with WrittenNotBy, Truncated instead leaves these entities out. Snapshots
	// says that the module will load all snapshots of the serving module, so that
	// entities with all their events are compared too. Within is then the part of
	// a rollout that is taken back.
	Truncated, Snapshots bool
	// These apply to Truncated. Paced limits the rate as for a verification, and
	// works on a shard until everything was compared or an incompatibility was
	// found. Accept means that an entity with a differing state is compared only
	// once. With PresenceOnly, the query asks whether such an entity exists.
	Paced, Accept bool
	// Fence delays the check until the shard's log has reached this revision of
	// the bindings.
	Fence uint64
}

// Fit is the result of a compatibility check.
type Fit struct {
	Missing  []MissingEvents // by type
	Faults   []FitFault
	Failing  int  // number of failing entities, including those not in Faults
	Entities int  // number of replayed entities
	Complete bool // all stored events were checked
	Present  bool // entities exist that are not deleted
	// Results of FitQuery.Truncated: the number of entities with a differing state
	// and the first of them, the modules whose snapshots the checked entities
	// begin with, and the number of entities that the serving module cannot read
	// either.
	Differing   int
	Differences []FitFault
	SnapshotsOf []journal.Digest
	Unreadable  int
}

// MissingEvents are stored events of a type that the manifest does not list.
type MissingEvents struct {
	EventType string
	Count     uint64
}

// FitFault is an entity on which the module fails.
type FitFault struct {
	EntityID  string
	At        journal.Sequence
	EventType string
	Message   string
}

// MaxFitFaults bounds the faults in an answer, and MaxFitMissing the event
// types.
const MaxFitFaults, MaxFitMissing = 100, 1024
