package meta

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// backSet has the optional parts of a rollback.
type backSet struct {
	ForcedBy string     `json:"forcedBy,omitempty"`
	Also     []TakeBack `json:"also,omitempty"`
}

// TakeBack names another type and the revision of its binding that is rolled
// back in the same command.
type TakeBack struct {
	EntityType string     `json:"entityType"`
	Revision   uint64     `json:"revision"`
	Owner      *Ownership `json:"owner,omitempty"` // as in WithOwner
}

// RollbackWith is like RollbackOf, but also rolls back other types, either all
// of them or none. It records the principal that forced the rollback, at most
// MaxForcedByBytes. It requires sharding.VersionRollbackWith.
func RollbackWith(entityType string, revision uint64, at int64, forcedBy string, also ...TakeBack) []byte {
	c := command{Op: opRollback, EntityType: entityType, At: at, Revision: revision}
	if forcedBy != "" || len(also) > 0 {
		c.Back = &backSet{ForcedBy: forcedBy, Also: also}
	}
	return encode(c)
}

// rollback reverts the revision, or the current revision if it is 0.
func (t *transition) rollback(c command) (Result, error) {
	if err := t.checkBy(c.By); err != nil {
		return Result{}, err
	}
	var with backSet
	if c.Back != nil {
		if level := t.view.ClusterVersion(); level < sharding.VersionRollbackWith {
			return Result{}, fmt.Errorf("%w: at cluster version %d a rollback must name one type and cannot be forced", ErrClusterVersion, level)
		}
		with = *c.Back
	}
	if err := checkText("forcedBy", with.ForcedBy, MaxForcedByBytes); err != nil {
		return Result{}, err
	}
	if len(with.Also) >= MaxTypesPerModule {
		return Result{}, fmt.Errorf("%w: the rollback names %d types, at most %d are allowed", ErrInvalid, len(with.Also)+1, MaxTypesPerModule)
	}
	why := ActivationChange{Kind: ChangeRollback, By: c.By, Forced: with.ForcedBy != ""}
	b, done, err := t.checkRollback(TakeBack{c.EntityType, c.Revision, c.Owner})
	if err != nil || done {
		return Result{Revision: b.Revision}, err
	}
	// The command's own type gets the highest revision, so that a caller that
	// waits for this revision has waited for all types.
	for _, other := range with.Also {
		b, done, err := t.checkRollback(other)
		if err == nil && (done || other.Revision == 0 || other.EntityType == c.EntityType) {
			err = fmt.Errorf("%w: %.64q is not served under revision %d", ErrConflict, other.EntityType, other.Revision)
		}
		if err != nil {
			return Result{}, err
		}
		t.revert(b, other.Revision, c.At, with.ForcedBy, why)
	}
	return t.revert(b, c.Revision, c.At, with.ForcedBy, why), nil
}

// checkRollback returns the binding that a rollback changes. done is true if
// the revision has already been rolled back.
func (t *transition) checkRollback(what TakeBack) (b Activation, done bool, err error) {
	b, bound := t.view.activations[what.EntityType]
	if err := t.setOwner(&b, what.Owner); bound && err != nil {
		return b, false, err
	}
	switch {
	case !bound:
		return b, false, fmt.Errorf("%w: %.64q", ErrUnknownType, what.EntityType)
	case what.Revision == 0:
	case t.view.ClusterVersion() < sharding.VersionRollbackOf:
		return b, false, fmt.Errorf("%w: at cluster version %d a rollback cannot name a revision", ErrClusterVersion, t.view.ClusterVersion())
	case b.TookBack == what.Revision:
		return b, true, nil
	case b.Revision != what.Revision:
		return b, false, fmt.Errorf("%w: %s is served under revision %d, not %d", ErrConflict, what.EntityType, b.Revision, what.Revision)
	}
	if b.Rollout.IsVerifying() {
		return b, false, fmt.Errorf("%w: %s", ErrConflict, b.verifyingMessage())
	}
	if b.Rollout.IsServing() {
		return b, false, fmt.Errorf("%w: a rollout of %s is in progress: promote or abort it first", ErrConflict, what.EntityType)
	}
	if len(b.History) == 0 {
		return b, false, fmt.Errorf("%w: %s", ErrNoPrevious, what.EntityType)
	}
	return b, false, nil
}

// revert binds the previous module again. revision is 0 if the command names
// none.
func (t *transition) revert(b Activation, revision uint64, at int64, forcedBy string, why ActivationChange) Result {
	last := len(b.History) - 1
	previous := b.History[last]
	previous.At, previous.TookBack, previous.ForcedBy = at, revision, cmp.Or(forcedBy, previous.ForcedBy)
	now := b
	b.History, b.Rollout = slices.Clone(b.History[:last]), nil
	if t.view.ClusterVersion() >= sharding.VersionSnapshotProofs {
		previous = now.withoutUnproved(b.withTruncated(previous))
		previous.Truncated = union(previous.Truncated, t.view.truncatedFor(now, previous.Digest))
	}
	return t.rebind(b, previous, why)
}
