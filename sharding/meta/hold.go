package meta

import (
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// PauseTypeWrites returns the command that keeps all entities of a type from
// writing records, including entities that do not exist yet. It requires
// sharding.VersionWritePauses. It fails with ErrConflict unless the type is
// served under revision over. The binding stays the same; the result's revision
// is the revision since which writes are paused.
//
// The pause ends with the next binding of the type or with ResumeTypeWrites.
// Both commands create a new revision. Therefore, if a binding over the
// revision of a paused type succeeds, nothing was written during the pause.
func PauseTypeWrites(entityType string, over uint64) []byte {
	return encode(command{Op: opPauseTypeWrites, EntityType: entityType, Revision: over})
}

// ResumeTypeWrites returns the command that ends the write pause that began at
// revision paused, and serves the type under a new revision. If that pause is
// already over, nothing changes.
func ResumeTypeWrites(entityType string, held uint64) []byte {
	return encode(command{Op: opResumeTypeWrites, EntityType: entityType, Revision: held})
}

func pauseTypeWrites(t *transition, entityType string, over uint64) (Result, error) {
	b, err := pausableActivation(t.view, entityType)
	switch {
	case err != nil:
		return Result{}, err
	case b.Revision != over:
		return Result{}, fmt.Errorf("%w: %s is served under revision %d, not %d", ErrConflict, entityType, b.Revision, over)
	case b.Rollout.IsActive() && t.view.ClusterVersion() < sharding.VersionSnapshotProofs:
		return Result{}, fmt.Errorf("%w: a rollout of %s is in progress: promote or abort it first", ErrConflict, entityType)
	case b.PausedSince != 0:
		return Result{Revision: b.PausedSince}, nil
	}
	t.view.counters.Revision++
	b.PausedSince = t.view.counters.Revision
	put(&t.view.activations, entityType, b)
	t.store(prefixActivation+entityType, b)
	t.storeCounters()
	return Result{Revision: b.PausedSince}, nil
}

func resumeTypeWrites(t *transition, entityType string, held uint64) (Result, error) {
	b, err := pausableActivation(t.view, entityType)
	if err != nil {
		return Result{}, err
	}
	if b.PausedSince == 0 || b.PausedSince != held {
		return Result{Revision: b.Revision}, nil
	}
	return t.rebind(b, b.Bound, ActivationChange{}), nil
}

// pausableActivation returns the binding of a type whose writes are or may be
// paused.
func pausableActivation(v *View, entityType string) (Activation, error) {
	if level := v.ClusterVersion(); level < sharding.VersionWritePauses {
		return Activation{}, fmt.Errorf("%w: %s", ErrClusterVersion, sharding.VersionWritePauses.NeededBy("pausing the writes of a type needs", level))
	}
	b, bound := v.activations[entityType]
	if !bound {
		return Activation{}, fmt.Errorf("%w: %.64q", ErrUnknownType, entityType)
	}
	return b, nil
}
