package meta

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// An activation on a type with truncated histories needs a proof that the
// module reads the snapshots that are left, see truncated.go. Making it takes as
// long as it takes to replay them, so the activation is kept as a rollout in the
// state verifying, with a part that has no entities: the older module serves all
// of the type meanwhile, and whichever node leads the metadata makes the proof.
//
// The machine itself does not let the module be bound without the proof: the
// type must be held under the revision that the proof names. A hold that ends
// gives the type another revision, so nothing was written since the proof.

// Verifying reports that the rollout's module is to serve all of the type once
// it is proved.
func (r *Rollout) Verifying() bool { return r != nil && r.State == RolloutVerifying }

// Serving reports that the rollout's module serves entities, or is to.
func (r *Rollout) Serving() bool {
	return r != nil && r.State != RolloutVerifying && r.State != RolloutRefused
}

// needsRollout reports that the module of the binding's rollout is needed.
func (b *Binding) needsRollout() bool { return b.Rollout != nil && b.Rollout.State != RolloutRefused }

// verifies says why another change of a type is refused.
func (b *Binding) verifies() string {
	return fmt.Sprintf("module %.12s is being verified for %s, and serves it then: wait, or abort that with 'hostd module rollout %s --abort'", b.Rollout.Digest, b.EntityType, b.EntityType)
}

// checkVerifying refuses a rollout that is verified, or was refused, and has
// what only a module that serves a part has, or the other way round.
func (r *Rollout) checkVerifying(v *View, b Binding) error {
	level := v.ClusterVersion()
	switch {
	case r.Serving() && (r.Force || r.Limits != nil):
		return fmt.Errorf("%w: a module that serves a part of %.64q is not forced, and changes no limits", ErrInvalid, b.EntityType)
	case r.Serving():
		return nil
	case level < sharding.VersionVerifyingRollouts:
		return fmt.Errorf("%w: a rollout is verified from level %d on, the cluster is at level %d: hostd cluster raise-level", ErrClusterVersion, sharding.VersionVerifyingRollouts, level)
	case r.Part != Part{} || r.First != Part{} || len(r.Stay) > 0 || len(r.Steps) > 0 || r.Pause != 0 || r.DueAt != 0 || r.Rules != "":
		return fmt.Errorf("%w: a module that is verified serves a part of %.64q", ErrInvalid, b.EntityType)
	case !slices.Equal(r.Types, []string{b.EntityType}):
		return fmt.Errorf("%w: a module is verified for one type at a time", ErrInvalid)
	case r.Limits != nil:
		return checkLimits(*r.Limits, level)
	}
	return nil
}

// proved reports that the module of b's rollout was compared with all truncated
// histories under the revision that serves, and that nothing is written since.
func (v *View) proved(b Binding) bool {
	one, ok := v.Verified(b.EntityType, b.Rollout.Digest)
	return ok && one.Proved && one.Revision == b.Revision && b.Held != 0
}

// activated is b once the module of its rollout, which was verified, serves.
// Without a proof the module loads no snapshots of others.
func (v *View) activated(b Binding, at int64, forcedBy string) (Binding, Bound) {
	r := b.Rollout
	to := Bound{Digest: r.Digest, TypeIndex: r.TypeIndex, At: at, ForcedBy: r.ForcedBy, Proved: true}
	if v.proved(b) {
		to.Snapshots, to.Truncated = v.snapshotsFor(b, r.Digest), v.truncatedFor(b, r.Digest)
	}
	if forcedBy != "" {
		to.ForcedBy = forcedBy
	}
	if r.Limits != nil {
		b.Limits = *r.Limits
	}
	b.History = append(slices.Clone(b.History), b.Bound)
	b.History = b.History[max(0, len(b.History)-MaxBindingHistory):]
	b.Rollout = nil
	return b, to
}
