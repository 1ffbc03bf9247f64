package meta

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// ChangeKind says how a change came about.
type ChangeKind string

// The kinds of changes of a binding.
const (
	ChangeActivate ChangeKind = "activate"
	ChangeLimits   ChangeKind = "limits" // of the type, for the same module
	ChangeRollback ChangeKind = "rollback"
	// Those of rollouts; from sharding.VersionRollouts on.
	ChangeCanary  ChangeKind = "canary"  // another module serves a part
	ChangePromote ChangeKind = "promote" // and all from then on
	ChangeAbort   ChangeKind = "abort"   // and nothing any more, or what stays
)

// BindingChange is one change of what serves an entity type, or under which
// limits.
type BindingChange struct {
	Revision uint64     `json:"revision"`
	At       int64      `json:"at"` // unix nanoseconds
	Kind     ChangeKind `json:"kind"`
	Digest   Digest     `json:"digest"` // that serves since then
	// By is who made it, KIND:NAME; empty where that is not known.
	By string `json:"by,omitempty"`
	// Forced: although the module did not fit what was stored.
	Forced bool `json:"forced,omitempty"`
	// TookBack is the revision that a rollback took back.
	TookBack uint64 `json:"tookBack,omitempty"`
	// Share and Prefix are of the Part that a module of ChangeCanary serves.
	Share  uint32 `json:"share,omitempty"`
	Prefix string `json:"prefix,omitempty"`
}

// Log returns the changes that led to the binding, oldest first. Of the time
// before sharding.VersionChanges these are the activations that no rollback has
// taken back, without who made them. It is not modified.
func (b *Binding) Log() []BindingChange {
	if len(b.Changes) > 0 || b.Revision == 0 {
		return b.Changes
	}
	var out []BindingChange
	for _, was := range append(slices.Clone(b.History), b.Bound) {
		out = append(out, was.change(BindingChange{Kind: ChangeActivate, Forced: was.ForcedBy != ""}))
	}
	return out
}

// change fills why in with what is bound.
func (b Bound) change(why BindingChange) BindingChange {
	switch why.Kind {
	case ChangeCanary, ChangePromote, ChangeAbort: // which say of which module
		why.Revision = b.Revision
		return why
	}
	why.Revision, why.At, why.Digest, why.TookBack = b.Revision, b.At, b.Digest, b.TookBack
	if why.TookBack > 0 {
		why.Kind = ChangeRollback
	}
	return why
}

// changed is the log with one more change, that to what to says.
func (b *Binding) changed(to Bound, why BindingChange) []BindingChange {
	log := append(slices.Clone(b.Log()), to.change(why))
	return log[max(0, len(log)-MaxBindingChanges):]
}

// By makes a command of Bind, BindLimited, BindOver or Rollback one that keeps
// who has it done, at most MaxForcedByBytes. It is of sharding.VersionChanges.
func By(command []byte, who string) []byte {
	c, err := decode(command)
	if err != nil {
		panic("metadata: " + err.Error()) // this package has made it
	}
	c.By = who
	return encode(c)
}

func (t *transition) checkBy(who string) error {
	if level := t.view.ClusterVersion(); who != "" && level < sharding.VersionChanges {
		return fmt.Errorf("%w: a binding of level %d does not keep who made it", ErrClusterVersion, level)
	}
	return checkText("by", who, MaxForcedByBytes)
}
