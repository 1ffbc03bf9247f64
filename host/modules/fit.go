package modules

import (
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// FitQuery says what to compare with which module.
type FitQuery struct {
	Shard      sharding.ShardID
	EntityType string
	Digest     journal.Digest
	Sample     int                 // entities that are replayed at most
	Draw       func(below int) int // a random number
	Budget     time.Duration       // for the events, and for the sample
	// PresenceOnly asks for Fit.Present alone; Digest is not looked at.
	PresenceOnly bool
	// WrittenNotBy: all entities whose newest event is by none of these modules,
	// in the place of a sample.
	WrittenNotBy []journal.Digest
	// First is the part of the type that others than these have served at first,
	// and Within the one that they serve by now; zero where it was all.
	First, Within meta.Part
	// Truncated: only entities whose first events are gone and of which the module
	// has no snapshot of its own, all of them: what it makes of the one that is
	// left is compared with what the module makes that serves the entity. With
	// WrittenNotBy they are left out in the place of that. Snapshots: it is to
	// load all snapshots of that one, so entities with all their events are
	// compared too. Within is the part of a rollout that goes back.
	Truncated, Snapshots bool
	// Of Truncated: Paced holds the replay back, as a verification is, and looks at
	// a shard until all of it was compared or something does not fit. Accept has
	// entities of which the module makes another state compared once. With
	// PresenceOnly it is asked whether there is one such entity.
	Paced, Accept bool
	// Fence: once the log of the shard has this revision of the bindings.
	Fence uint64
}

// Fit is what does not fit.
type Fit struct {
	Missing  []MissingEvents // by type
	Faults   []FitFault
	Failing  int  // entities of faults, also of those beyond them
	Entities int  // that were replayed
	Complete bool // all stored events were looked at
	Present  bool // there are entities, those that are deleted aside
	// Of FitQuery.Truncated: entities of which the module makes another state, the
	// first of them, the modules whose snapshots stand for those that were looked
	// at, and how many the module that serves cannot read either.
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

// FitFault is an entity that the module fails on.
type FitFault struct {
	EntityID  string
	At        journal.Sequence
	EventType string
	Message   string
}

// MaxFitFaults bounds the faults that an answer has, and MaxFitMissing the types of
// events that it names.
const MaxFitFaults, MaxFitMissing = 100, 1024
