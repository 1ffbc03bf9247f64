package meta

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// Activation with a proof.
//
// Activating a module on a type with truncated histories needs a proof that the
// module reads the remaining snapshots, see truncated.go. Making the proof
// lasts as long as replaying them, which is too long for one call. So the
// activation is stored as a rollout in state verifying with an empty part: the
// older module continues to serve the whole type, and the node that leads the
// metadata shard makes the proof.
//
// The state machine does not allow binding the module without the proof. Writes
// to the type must still be paused under the revision that the proof names.
// Ending the pause changes the revision, so an unchanged revision shows that
// nothing was written since the proof.

// IsVerifying reports whether the rollout's module will serve the whole type
// once it is proved.
func (r *Rollout) IsVerifying() bool { return r != nil && r.State == RolloutVerifying }

// IsServing reports whether the rollout's module serves entities or will.
func (r *Rollout) IsServing() bool {
	return r != nil && r.State != RolloutVerifying && r.State != RolloutRefused
}

// needsRollout reports whether the module of the binding's rollout is needed.
func (b *Activation) needsRollout() bool {
	return b.Rollout != nil && b.Rollout.State != RolloutRefused
}

// verifyingMessage explains why another change of the type is rejected.
func (b *Activation) verifyingMessage() string {
	return fmt.Sprintf("module %.12s is being verified for %s and will serve it afterwards: wait, or abort with 'hostd module rollout %s --abort'", b.Rollout.Digest, b.EntityType, b.EntityType)
}

// checkVerifying rejects a verifying or refused rollout with fields that only a
// serving rollout may have, and a serving rollout with fields that only a
// verifying rollout may have.
func (r *Rollout) checkVerifying(v *View, b Activation) error {
	level := v.ClusterVersion()
	switch {
	case r.IsServing() && (r.Force || r.Limits != nil):
		return fmt.Errorf("%w: a rollout to some entities of %.64q cannot be forced or change limits", ErrInvalid, b.EntityType)
	case r.IsServing():
		return nil
	case level < sharding.VersionVerifyingRollouts:
		return fmt.Errorf("%w: %s", ErrClusterVersion, sharding.VersionVerifyingRollouts.NeededBy("verifying rollouts need", level))
	case r.Part != Part{} || r.First != Part{} || len(r.Stay) > 0 || len(r.Steps) > 0 || r.Pause != 0 || r.DueAt != 0 || r.Rules != "":
		return fmt.Errorf("%w: a verifying rollout cannot serve some entities of %.64q only", ErrInvalid, b.EntityType)
	case !slices.Equal(r.Types, []string{b.EntityType}):
		return fmt.Errorf("%w: a verifying rollout must have exactly one type", ErrInvalid)
	case r.Limits != nil:
		return checkLimits(*r.Limits, level)
	}
	return nil
}

// isProved reports whether the module of b's rollout was compared with all
// truncated histories under the current revision and nothing was written since.
func (v *View) isProved(b Activation) bool {
	one, ok := v.VerificationResult(b.EntityType, b.Rollout.Digest)
	return ok && one.Proved && one.Revision == b.Revision && b.PausedSince != 0
}

// activate returns b with the verified module of its rollout bound. Without a
// proof, the module loads no snapshots of other modules.
func (v *View) activate(b Activation, at int64, forcedBy string) (Activation, Bound) {
	r := b.Rollout
	to := Bound{Digest: r.Digest, TypeIndex: r.TypeIndex, At: at, ForcedBy: r.ForcedBy, Proved: true}
	if v.isProved(b) {
		to.Snapshots, to.Truncated = v.snapshotsFor(b, r.Digest), v.truncatedFor(b, r.Digest)
	}
	if forcedBy != "" {
		to.ForcedBy = forcedBy
	}
	if r.Limits != nil {
		b.Limits = *r.Limits
	}
	b.History = append(slices.Clone(b.History), b.Bound)
	b.History = b.History[max(0, len(b.History)-MaxActivationHistory):]
	b.Rollout = nil
	return b, to
}
