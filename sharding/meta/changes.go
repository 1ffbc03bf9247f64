package meta

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// ChangeKind says how a binding changed.
type ChangeKind string

// The kinds of binding changes.
const (
	ChangeActivate ChangeKind = "activate"
	ChangeLimits   ChangeKind = "limits" // new limits for the type, same module
	ChangeRollback ChangeKind = "rollback"
	// Changes by rollouts; from sharding.VersionRollouts on.
	ChangeCanary  ChangeKind = "canary"  // the rolled-out module serves a part of the entities
	ChangePromote ChangeKind = "promote" // the rolled-out module serves all entities
	ChangeAbort   ChangeKind = "abort"   // the rollout is aborted; only entities that stay keep the rolled-out module
)

// ActivationChange is one change of the module or of the limits of an entity type.
type ActivationChange struct {
	Revision uint64     `json:"revision"`
	At       int64      `json:"at"` // Unix nanoseconds
	Kind     ChangeKind `json:"kind"`
	Digest   Digest     `json:"digest"` // module that serves since this change
	// By is the principal that made the change, as KIND:NAME; empty if unknown.
	By string `json:"by,omitempty"`
	// Forced: the module was activated although it failed the compatibility
	// check.
	Forced bool `json:"forced,omitempty"`
	// TookBack is the revision that the rollback reverted.
	TookBack uint64 `json:"tookBack,omitempty"`
	// Share and Prefix describe the Part that the module of a ChangeCanary
	// serves.
	Share  uint32 `json:"share,omitempty"`
	Prefix string `json:"prefix,omitempty"`
}

// ChangeLog returns the changes that led to the binding, oldest first. Changes
// made before sharding.VersionChanges are reconstructed from the history, which
// contains only the activations that no rollback has reverted, without their
// authors. The caller must not modify the slice.
func (b *Activation) ChangeLog() []ActivationChange {
	if len(b.Changes) > 0 || b.Revision == 0 {
		return b.Changes
	}
	var out []ActivationChange
	for _, was := range append(slices.Clone(b.History), b.Bound) {
		out = append(out, was.toChange(ActivationChange{Kind: ChangeActivate, Forced: was.ForcedBy != ""}))
	}
	return out
}

// toChange completes the change with the fields of the bound module.
func (b Bound) toChange(why ActivationChange) ActivationChange {
	switch why.Kind {
	case ChangeCanary, ChangePromote, ChangeAbort: // these changes already name their module
		why.Revision = b.Revision
		return why
	}
	why.Revision, why.At, why.Digest, why.TookBack = b.Revision, b.At, b.Digest, b.TookBack
	if why.TookBack > 0 {
		why.Kind = ChangeRollback
	}
	return why
}

// withChange returns the change log with one more change, which binds
// `to`.
func (b *Activation) withChange(to Bound, why ActivationChange) []ActivationChange {
	log := append(slices.Clone(b.ChangeLog()), to.toChange(why))
	return log[max(0, len(log)-MaxActivationChanges):]
}

// WithPrincipal adds the principal that makes the change to a command of Bind,
// BindLimited, BindOver or Rollback, at most MaxForcedByBytes. It requires
// sharding.VersionChanges.
func WithPrincipal(command []byte, who string) []byte {
	c, err := decode(command)
	if err != nil {
		panic("metadata: " + err.Error()) // the command was made by this package
	}
	c.By = who
	return encode(c)
}

func (t *transition) checkBy(who string) error {
	if level := t.view.ClusterVersion(); who != "" && level < sharding.VersionChanges {
		return fmt.Errorf("%w: at cluster version %d an activation does not record its creator", ErrClusterVersion, level)
	}
	return checkText("by", who, MaxForcedByBytes)
}
