package meta

import (
	"slices"

	"github.com/hostd/hostd/sharding"
)

// Once retention has truncated an entity's history, the state exists only in
// snapshots, in the bytes of the module that made them. Another module may load
// these bytes without an error and lose a field that it does not know; its next
// snapshot makes that permanent. So a binding names the modules whose snapshots
// its module may load then, and a module is only named if a comparison of all
// such entities under the binding's revision has found no other state. That
// comparison is a Verified, and the binding takes the list from it when it is
// made. An equal version of the state is not enough: its author may be wrong.
//
// What was proved of a module holds for the snapshots that it had made by then.
// If the module has served again since, it may have written states of which
// nothing is known, so it is taken from the list when the type goes back to a
// binding from before that time.

// MaxTruncatedModules is of how many modules a module loads the snapshots that
// stand for truncated histories.
const MaxTruncatedModules = 64

// TruncatedModules are the modules whose snapshots the module of the binding
// loads if the first events of an entity are gone.
//
// Before sharding.VersionSnapshotProofs nothing was recorded, and the module
// loaded the snapshots of any other. A binding from that time keeps those of
// the modules that had served the type before: their entities have been served
// from these snapshots ever since, and would all fail after the upgrade. The
// next module that serves the type needs a proof.
func (b *Binding) TruncatedModules() []Digest { return b.settled(b.Bound).Truncated }

// Restored is what a binding is given that served a type in another cluster,
// together with the entities from there.
type Restored struct {
	// Truncated are the modules whose snapshots its module loads of entities whose
	// first events are gone. Assumed: nobody compared some of them.
	Truncated []Digest
	Assumed   bool
}

// ProvedElsewhere is what the module of a binding loads, for a cluster that gets
// the entities.
func (b *Binding) ProvedElsewhere() Restored { return b.settled(b.Bound).restored() }

// HistoryProvedElsewhere is that of a module of the history, if the type went
// back to it now.
func (b *Binding) HistoryProvedElsewhere(i int) Restored {
	return b.unproved(b.settled(b.History[i])).restored()
}

func (to Bound) restored() Restored {
	return Restored{union(to.Snapshots, to.Truncated), to.Assumed}
}

// RolloutProvedElsewhere are the modules whose snapshots the module of the
// rollout loads then.
func (b *Binding) RolloutProvedElsewhere() []Digest {
	return union(b.Rollout.Snapshots, b.RolloutTruncatedModules())
}

// RolloutTruncatedModules is TruncatedModules of the module of the rollout.
func (b *Binding) RolloutTruncatedModules() []Digest {
	r := b.Rollout
	if r == nil || r.Proved {
		return r.truncated()
	}
	before := *b
	before.History = append(slices.Clone(b.History), b.Bound)
	return before.settled(Bound{Digest: r.Digest}).Truncated
}

func (r *Rollout) truncated() []Digest {
	if r == nil {
		return nil
	}
	return r.Truncated
}

// settled is what serves b's type, with all modules named whose snapshots it
// loads.
func (b *Binding) settled(to Bound) Bound {
	if to.Proved {
		return to
	}
	to.Proved, to.Truncated = true, nil
	for _, h := range b.History {
		if h.Digest != to.Digest {
			to.Truncated, to.Assumed = union(to.Truncated, []Digest{h.Digest}), true
		}
	}
	return to
}

// without is the binding's module that loads no snapshots of these modules any
// more.
func (to Bound) without(modules ...Digest) Bound {
	drop := func(d Digest) bool { return slices.Contains(modules, d) }
	to.Snapshots = slices.DeleteFunc(slices.Clone(to.Snapshots), drop)
	to.Truncated = slices.DeleteFunc(slices.Clone(to.Truncated), drop)
	return to
}

// LoadsByProof reports that a module has loaded the snapshots of others only by
// proof as long as it has served a type, or entities of it. It is false of a
// module that served before sharding.VersionSnapshotProofs, when any snapshot was
// loaded whose module was not known better, and of one that the metadata knows
// too little about: it keeps the last bindings only.
func (v *View) LoadsByProof(entityType string, digest Digest) bool {
	b := v.bindings[entityType]
	one, known := v.Verified(entityType, digest)
	if known = known && one.Proved; b.Rollout.Serving() && b.Rollout.Digest == digest {
		if known = true; !b.Rollout.Proved {
			return false
		}
	}
	for _, to := range append(slices.Clone(b.History), b.Bound) {
		if to.Digest != digest {
			continue
		}
		if known = true; !to.Proved || to.Assumed {
			return false
		}
	}
	return known
}

// unproved is a binding from before b, which the type goes back to, without the
// modules that have served the type since, or a part of it.
func (b *Binding) unproved(to Bound) Bound {
	log := b.Log()
	if len(log) == 0 || log[0].Revision > to.Revision {
		to.Snapshots, to.Truncated = nil, nil // the log does not reach so far back
		return to
	}
	since := []Digest{b.Digest}
	for _, c := range log {
		if c.Revision > to.Revision {
			since = append(since, c.Digest)
		}
	}
	return to.without(since...)
}

// takenBack is b's module once the entities of a rollout go back to it: of the
// newer module's snapshots it loads those that were proved now.
func (t *transition) takenBack(b Binding, newer Digest) Bound {
	if t.view.ClusterVersion() < sharding.VersionSnapshotProofs {
		return b.Bound
	}
	to := b.settled(b.Bound).without(newer)
	if one, ok := t.view.Verified(b.EntityType, b.Digest); ok && one.Revision == b.Revision {
		to.Truncated = union(to.Truncated, one.Truncated)
	}
	return to
}

// truncatedFor are the modules whose snapshots a module loads for truncated
// histories that is to serve a type.
func (v *View) truncatedFor(b Binding, digest Digest) []Digest {
	if b.Digest == digest {
		return b.Truncated // other limits
	}
	if one, ok := v.Verified(b.EntityType, digest); ok && one.Revision == b.Revision {
		return one.Truncated
	}
	return nil
}

// union appends what a list lacks; past MaxTruncatedModules the first go.
func union(list, more []Digest) []Digest {
	out := slices.Clone(list)
	for _, d := range more {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out[max(0, len(out)-MaxTruncatedModules):]
}
