package meta

import (
	"fmt"

	"github.com/hostd/hostd/sharding"
)

// HoldType makes the command that keeps all entities of a type, also those that
// do not exist yet, from leaving records, from sharding.VersionHolds on and while
// the type is served under the revision over; it is ErrConflict else, and while
// a rollout is under way. The binding is the same, the revision of the result
// is the one since which it is held.
//
// Whatever is bound next ends the hold, and so does ReleaseType. Both are under
// another revision: what is bound over the revision of a held type comes in the
// place of one that was held all the time.
func HoldType(entityType string, over uint64) []byte {
	return encode(command{Op: opHoldType, EntityType: entityType, Revision: over})
}

// ReleaseType makes the command that ends the hold since the revision held, and
// has the type served under a new one. Where that hold is over it changes
// nothing.
func ReleaseType(entityType string, held uint64) []byte {
	return encode(command{Op: opReleaseType, EntityType: entityType, Revision: held})
}

func holdType(t *transition, entityType string, over uint64) (Result, error) {
	b, err := holdable(t.view, entityType)
	switch {
	case err != nil:
		return Result{}, err
	case b.Revision != over:
		return Result{}, fmt.Errorf("%w: %s is served under revision %d, not %d", ErrConflict, entityType, b.Revision, over)
	case b.Rollout.Active() && t.view.ClusterVersion() < sharding.VersionSnapshotProofs:
		return Result{}, fmt.Errorf("%w: another module is on its way to serve %s: promote or abort it first", ErrConflict, entityType)
	case b.Held != 0:
		return Result{Revision: b.Held}, nil
	}
	t.view.counters.Revision++
	b.Held = t.view.counters.Revision
	put(&t.view.bindings, entityType, b)
	t.store(prefixBinding+entityType, b)
	t.storeCounters()
	return Result{Revision: b.Held}, nil
}

func releaseType(t *transition, entityType string, held uint64) (Result, error) {
	b, err := holdable(t.view, entityType)
	if err != nil {
		return Result{}, err
	}
	if b.Held == 0 || b.Held != held {
		return Result{Revision: b.Revision}, nil
	}
	return t.rebind(b, b.Bound, BindingChange{}), nil
}

// holdable is the binding of a type that is held, or may be.
func holdable(v *View, entityType string) (Binding, error) {
	if level := v.ClusterVersion(); level < sharding.VersionHolds {
		return Binding{}, fmt.Errorf("%w: a type is held from level %d on, the cluster is at level %d: hostd cluster raise-level", ErrClusterVersion, sharding.VersionHolds, level)
	}
	b, bound := v.bindings[entityType]
	if !bound {
		return Binding{}, fmt.Errorf("%w: %.64q", ErrUnknownType, entityType)
	}
	return b, nil
}
