package meta

import (
	"slices"

	"github.com/hostd/hostd/sharding"
)

// Proofs for truncated histories.
//
// Once retention has truncated an entity's history, its state exists only in
// snapshots, encoded by the module that made them. A different module may load
// these bytes without an error but lose a field that it does not know, and its
// next snapshot makes the loss permanent.
//
// A binding therefore names the modules whose snapshots its module may load in
// that case. A module is listed only if a comparison of all such entities under
// the binding's revision found no differing state. The comparison is stored as
// a VerificationResult, and the binding copies the list from that result when
// the binding is made. Comparing the declared version of the state format
// instead would not be enough, because the module's author may have forgotten
// to change it.
//
// A proof about a module covers only the snapshots that the module had made by
// then. If the module has served again since, it may have written states that
// were never compared. Therefore a rollback to an earlier binding removes from
// the list the modules that have served in the meantime.

// MaxTruncatedModules limits the modules whose snapshots a module may load for
// truncated histories.
const MaxTruncatedModules = 64

// TruncatedModules returns the modules whose snapshots the binding's module
// loads if the first events of an entity are gone.
//
// Before sharding.VersionSnapshotProofs nothing was recorded and a module
// loaded snapshots of every other module. A binding from that time is assumed
// to load the snapshots of all modules in its history. The entities have been
// served from these snapshots ever since, and would otherwise all fail after
// the upgrade. The next module that serves the type needs a proof.
func (b *Activation) TruncatedModules() []Digest { return b.withTruncated(b.Bound).Truncated }

// RestoredActivation holds the snapshot modules of a binding from another
// cluster, if the type is restored together with its entities.
type RestoredActivation struct {
	// Truncated are the modules whose snapshots the binding's module loads for
	// entities whose first events are gone. Assumed means that some of them were
	// never compared.
	Truncated []Digest
	Assumed   bool
}

// ToRestored returns the snapshot modules of the binding, for a cluster that
// restores its entities.
func (b *Activation) ToRestored() RestoredActivation { return b.withTruncated(b.Bound).toRestored() }

// RestoredHistory returns the snapshot modules of entry i of the history, as
// they would be after a rollback to that entry.
func (b *Activation) RestoredHistory(i int) RestoredActivation {
	return b.withoutUnproved(b.withTruncated(b.History[i])).toRestored()
}

func (to Bound) toRestored() RestoredActivation {
	return RestoredActivation{union(to.Snapshots, to.Truncated), to.Assumed}
}

// RestoredRollout returns the modules whose snapshots the rollout's module
// loads.
func (b *Activation) RestoredRollout() []Digest {
	return union(b.Rollout.Snapshots, b.RolloutTruncatedModules())
}

// RolloutTruncatedModules is TruncatedModules for the rollout's module.
func (b *Activation) RolloutTruncatedModules() []Digest {
	r := b.Rollout
	if r == nil || r.Proved {
		return r.truncatedModules()
	}
	before := *b
	before.History = append(slices.Clone(b.History), b.Bound)
	return before.withTruncated(Bound{Digest: r.Digest}).Truncated
}

func (r *Rollout) truncatedModules() []Digest {
	if r == nil {
		return nil
	}
	return r.Truncated
}

// withTruncated returns `to` with the snapshot modules filled in, for a binding
// from before proofs were recorded.
func (b *Activation) withTruncated(to Bound) Bound {
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

// without returns `to` without these modules as snapshot modules.
func (to Bound) without(modules ...Digest) Bound {
	drop := func(d Digest) bool { return slices.Contains(modules, d) }
	to.Snapshots = slices.DeleteFunc(slices.Clone(to.Snapshots), drop)
	to.Truncated = slices.DeleteFunc(slices.Clone(to.Truncated), drop)
	return to
}

// LoadsByProof reports whether a module, for as long as it has served entities
// of the type, has loaded snapshots of other modules only if a proof allowed
// it. It returns false for a module that served before
// sharding.VersionSnapshotProofs, when snapshots of any module were loaded. It
// also returns false for a module about which the metadata knows too little,
// because the metadata keeps only the latest bindings.
func (v *View) LoadsByProof(entityType string, digest Digest) bool {
	b := v.activations[entityType]
	one, known := v.VerificationResult(entityType, digest)
	if known = known && one.Proved; b.Rollout.IsServing() && b.Rollout.Digest == digest {
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

// withoutUnproved returns `to`, a binding that the type is rolled back to,
// without the modules that have served the type or a part of it since.
func (b *Activation) withoutUnproved(to Bound) Bound {
	log := b.ChangeLog()
	if len(log) == 0 || log[0].Revision > to.Revision {
		to.Snapshots, to.Truncated = nil, nil // the change log does not reach back that far
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

// afterAbort returns b's module after the entities of a rollout have gone back
// to it. The module loads the newer module's snapshots only if a proof under
// the current revision allows it.
func (t *transition) afterAbort(b Activation, newer Digest) Bound {
	if t.view.ClusterVersion() < sharding.VersionSnapshotProofs {
		return b.Bound
	}
	to := b.withTruncated(b.Bound).without(newer)
	if one, ok := t.view.VerificationResult(b.EntityType, b.Digest); ok && one.Revision == b.Revision {
		to.Truncated = union(to.Truncated, one.Truncated)
	}
	return to
}

// truncatedFor returns the modules whose snapshots a module will load for
// truncated histories once it serves the type.
func (v *View) truncatedFor(b Activation, digest Digest) []Digest {
	if b.Digest == digest {
		return b.Truncated // only the limits change
	}
	if one, ok := v.VerificationResult(b.EntityType, digest); ok && one.Revision == b.Revision {
		return one.Truncated
	}
	return nil
}

// union appends the elements of more that are not in the list. If the result is
// longer than MaxTruncatedModules, it drops the first elements.
func union(list, more []Digest) []Digest {
	out := slices.Clone(list)
	for _, d := range more {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out[max(0, len(out)-MaxTruncatedModules):]
}
