package modules

import (
	"context"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// Stored tells whether there are entities of a type, those that are deleted
// aside, once the logs of all shards have the fence, a revision of the bindings.
type Stored func(ctx context.Context, fence uint64) (bool, error)

// Activation has a module serve an entity type.
type Activation struct {
	EntityType string
	Digest     journal.Digest
	Limits     *Limits // nil: as they are
	By         string  // who has it done, KIND:NAME
	ForcedBy   string  // who has it done although the module does not fit, or empty
	// Stored is asked where the module keeps states in another way than the one
	// that serves; nil: that is not looked at.
	Stored Stored
	Allow  Allow
	Truncated
	// RestoredBinding are modules of which another cluster has proved that the module
	// reads their snapshots, where the entities come from there.
	Restored meta.RestoredBinding
}

// Activated is what an activation led to.
type Activated struct {
	Revision  uint64
	Verifying bool // the module serves once it is compared with truncated histories
}

// Truncated says what a module that takes the place of another one does on
// entities whose first events are gone. The zero value does not look at them:
// the module loads none of the snapshots that are left of them then.
type Truncated struct {
	Prove  bool // compare them before and while the type is held
	Later  bool // of an activation: if there are such entities, the cluster proves the module after the call
	Accept bool // another state than before is meant
	Force  bool // the module serves all the same, and loads none of these snapshots
	// Remark gets what a caller is told of it; nil: nobody is.
	Remark func(string)
}

// Rebinding is a module that is to serve an entity type.
type Rebinding struct {
	EntityType string
	Owner      string   // the subject that the type belongs to; empty for nobody
	Types      []string // all that the module serves
}

// Allow says whether that may be, and to whom the type belongs from then on.
// Nil allows it to everybody, and leaves the owner.
type Allow func(ctx context.Context, r Rebinding) (owner string, err error)
