package modules

import (
	"context"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// storedEntities checks whether the cluster stores entities.
type storedEntities interface {
	// HasEntities reports whether a type has entities that are not deleted. It
	// checks each shard once the shard's log has reached fence, which is a
	// revision of the activations.
	HasEntities(ctx context.Context, entityType string, fence uint64) (bool, error)
}

// approver decides whether a caller may activate a different module for a type.
type approver interface {
	// Approve decides whether the activation is permitted, and returns the
	// type's new owner.
	Approve(ctx context.Context, r Rebinding) (owner string, err error)
}

// Activation makes a module serve an entity type.
type Activation struct {
	EntityType string
	Digest     journal.Digest
	Limits     *Limits // nil keeps the current limits
	By         string  // principal that requested it, KIND:NAME
	ForcedBy   string  // principal that forced the activation of an incompatible module; empty if it was not forced
	// Entities checks whether the type has entities, if the module stores states
	// in a different form than the serving module. nil skips that check.
	Entities storedEntities
	Approver approver // nil permits everything and keeps the owner
	Truncated
	// Restored lists modules for which another cluster has proved that this
	// module reads their snapshots, if the entities are imported from that
	// cluster.
	Restored meta.RestoredActivation
}

// Activated is the result of an activation.
type Activated struct {
	Revision  uint64
	Verifying bool // the module will serve only after the comparison on truncated histories
}

// Truncated configures the check of a module on entities whose first events
// are gone, if the module replaces another module. The zero value skips the
// check; then the module does not load the remaining snapshots of these
// entities.
type Truncated struct {
	Prove  bool // compare the states of both modules, before and while the type is write-paused
	Later  bool // an activation returns before the entities with truncated histories are compared
	Accept bool // accept differing states as intended
	Force  bool // activate without a proof; the module then loads none of these snapshots
	// Warn receives warnings for the caller; nil discards them.
	Warn func(string)
}

// Rebinding is a module that is about to be activated for an entity type.
type Rebinding struct {
	EntityType string
	Owner      string   // subject that owns the type; empty for none
	Types      []string // all types of the module
}
