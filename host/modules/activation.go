package modules

import (
	"context"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// storedEntities knows the entities of the cluster.
type storedEntities interface {
	// HasEntities reports whether a type has entities that are not deleted,
	// judged by the logs of all shards once they have reached fence, a revision
	// of the bindings.
	HasEntities(ctx context.Context, entityType string, fence uint64) (bool, error)
}

// approver decides who may rebind types.
type approver interface {
	// Approve decides whether the rebinding is permitted, and returns the type's
	// new owner.
	Approve(ctx context.Context, r Rebinding) (owner string, err error)
}

// Activation makes a module serve an entity type.
type Activation struct {
	EntityType string
	Digest     journal.Digest
	Limits     *Limits // nil: unchanged
	By         string  // who requested it, KIND:NAME
	ForcedBy   string  // principal that forced the activation of an incompatible module; empty if it was not forced
	// Entities is asked if the module stores states in a different form than the
	// serving one. nil skips that check.
	Entities storedEntities
	Approver approver // nil permits everything and keeps the owner
	Truncated
	// Restored are modules for which another cluster has proved that this module
	// reads their snapshots, if the entities are imported from that cluster.
	Restored meta.RestoredActivation
}

// Activated is the result of an activation.
type Activated struct {
	Revision  uint64
	Verifying bool // the module serves after it was compared on truncated histories
}

// Truncated says how a module that replaces another one is checked on entities
// whose first events are gone. The zero value skips the check; then the module
// does not load the remaining snapshots of these entities.
type Truncated struct {
	Prove  bool // compare them, before and while the type is write-paused
	Later  bool // for an activation: if such entities exist, prove the module after the call
	Accept bool // differing states are intended
	Force  bool // activate without a proof; the module then loads none of these snapshots
	// Warn receives warnings for the caller; nil discards them.
	Warn func(string)
}

// Rebinding is a module that is about to serve an entity type.
type Rebinding struct {
	EntityType string
	Owner      string   // subject that owns the type; empty for none
	Types      []string // all types of the module
}
