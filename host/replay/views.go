package replay

import (
	"github.com/hostd/hostd/host/jsonpatch"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Folded is a state that a module has made of an entity's events.
type Folded struct {
	State    []byte
	Sequence journal.Sequence // of the last event that is in it
	Module   journal.Digest
	Deleted  bool // the last event ended the entity's life
}

// VerifyRequest says what to replay with which module.
type VerifyRequest struct {
	Shard      sharding.ShardID
	EntityType string
	Digest     journal.Digest
	// Sample entities are drawn by Draw, a random number below its argument; 0
	// is all of them.
	Sample int
	Draw   func(below int) int
	// Revision is that of the binding that is compared with; 0: the one that
	// serves.
	Revision uint64
	// Told, where it is set, reports that no further difference is told: where one
	// begins is looked for no more.
	Told func() bool
}

// Verified is what came of one entity.
type Verified struct {
	EntityID string
	Events   uint64
	// Cut: it was not replayed, because its first events were cut. Uncompared:
	// the module that serves the type could not replay it.
	Cut, Uncompared bool
	// Difference is empty where the module agrees with the one that serves the
	// type; At is the event at which it shows. Fault says that the module failed.
	Difference string
	At         journal.Sequence
	Fault      bool
	EventType  string // of a fault, where it is one event's
	// Patch turns the state by the module that serves into the other, where both
	// are JSON; PatchCut says that it is longer than that.
	Patch    []jsonpatch.Operation
	PatchCut bool
}
