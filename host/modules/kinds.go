package modules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// replaceTries bounds how often an operation is repeated because of a
// concurrent change.
const replaceTries = 4

// replace activates the module instead of the current one, once it is known to
// be compatible with the stored entities. The command names the revision that
// was checked, so that it fails after a concurrent change.
func (s *Service) replace(ctx context.Context, m *guest.Module, a Activation) (Activated, error) {
	for try := 1; ; try++ {
		if err := s.metadata.CatchUp(ctx); err != nil {
			return Activated{}, err
		}
		view := s.metadata.View()
		b, bound := view.Activation(a.EntityType)
		as, err := checkOwner(ctx, view, b, a.EntityType, a.Digest, a.Approver)
		if err != nil {
			return Activated{}, err
		}
		kept := kinds{writePauses: writePauses{Service: s}, module: m}
		if bound {
			if err := kept.look(ctx, b, a.Entities); err != nil {
				return Activated{}, err
			}
			now, verified, err := s.verify(ctx, view, b, m, a)
			if errors.Is(err, meta.ErrConflict) && try < replaceTries {
				continue
			}
			if err != nil || verified {
				return now, refusedError(err)
			}
		}
		var proved proofs
		if bound {
			if proved, err = s.proveAll(ctx, []meta.Activation{b}, m, a.Truncated, a.By); err != nil {
				return Activated{}, err
			}
		}
		revision, err := s.rebind(ctx, a.Digest, func(ctx context.Context) ([]byte, error) {
			if err := kept.lookAgain(ctx, view); err != nil {
				return nil, err
			}
			forcedBy, err := proved.last(ctx, &kept.writePauses, view)
			if err != nil {
				return nil, err
			}
			forced := a
			forced.ForcedBy = cmp.Or(a.ForcedBy, forcedBy)
			return as(by(view, a.By, order(view, b, forced))), nil
		})
		kept.release(ctx, err)
		if !errors.Is(err, meta.ErrConflict) || try == replaceTries {
			return Activated{Revision: revision}, refusedError(err)
		}
	}
}

// refusedError converts the metadata's error about a conflicting command into
// an error for callers.
func refusedError(err error) error {
	if errors.Is(err, meta.ErrShardKey) || errors.Is(err, meta.ErrConflict) {
		return &status.RefusedError{Reason: err.Error()}
	}
	if errors.Is(err, meta.ErrUnknownModule) {
		return request.ErrUnknownModule // the module was removed meanwhile
	}
	return err
}

// order returns the command that replaces the activation b. b is the zero
// Activation if no module serves the type.
func order(view *meta.View, b meta.Activation, a Activation) []byte {
	digest, at := meta.Digest(a.Digest), time.Now().UnixNano()
	switch {
	case view.ClusterVersion() >= sharding.VersionSnapshotProofs && len(a.Restored.Truncated) > 0:
		return meta.BindRestored(a.EntityType, digest, at, b.Revision, (*meta.Limits)(a.Limits), a.Restored)
	case view.ClusterVersion() >= sharding.VersionBindOver:
		return meta.BindForced(a.EntityType, digest, at, b.Revision, (*meta.Limits)(a.Limits), a.ForcedBy)
	case a.Limits != nil:
		return meta.BindLimited(a.EntityType, digest, at, meta.Limits(*a.Limits))
	default:
		return meta.Bind(a.EntityType, digest, at)
	}
}

// kinds lists the types that the module declares with a different kind or
// encoding than the serving module. The module would misread the last event of
// an entity as a state, a state as an event, or payloads that are not JSON. It
// may serve such a type only if the type has no entities.
type kinds struct {
	writePauses
	module *guest.Module
	others []otherKind
}

// otherKind is a type that the module declares with a different kind or
// encoding.
type otherKind struct {
	meta.Activation
	was, next *manifest.EntityType
	entities  storedEntities
}

// look rejects a type with a different kind or encoding if it has entities. If
// it has none, look records the type for lookAgain.
func (k *kinds) look(ctx context.Context, b meta.Activation, entities storedEntities) error {
	if entities == nil || b.Digest == meta.Digest(k.module.Digest()) {
		return nil
	}
	now, err := k.modules.Module(ctx, journal.Digest(b.Digest), "")
	if err != nil {
		return fmt.Errorf("compare with the active module: %w", err)
	}
	was, _, one := now.Manifest().Type(b.EntityType)
	next, _, other := k.module.Manifest().Type(b.EntityType)
	if !one || !other || was.Kind == next.Kind && was.Encoding == next.Encoding || was.Kind == manifest.Transient {
		return nil // transient types store nothing
	}
	o := otherKind{Activation: b, was: was, next: next, entities: entities}
	if err := o.empty(ctx, 0); err != nil {
		return err
	}
	k.others = append(k.others, o)
	return nil
}

// lookAgain pauses the writes of the entity types that an earlier check recorded in
// k.others. It then checks them again, because an entity may have been created
// after the first check.
// Activating the module over the checked revision ends the pauses.
func (k *kinds) lookAgain(ctx context.Context, view *meta.View) error {
	if view.ClusterVersion() < sharding.VersionWritePauses {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, pauseTime)
	defer cancel()
	for i := range k.others {
		o := &k.others[i]
		held, err := k.pause(ctx, o.EntityType, o.Revision)
		if err != nil {
			return err
		}
		if err := o.empty(ctx, held); err != nil {
			return err
		}
	}
	return nil
}

// empty returns an error if the type has entities. It checks the logs of all
// shards once they have reached fence.
func (o *otherKind) empty(ctx context.Context, fence uint64) error {
	found, err := o.entities.HasEntities(ctx, o.EntityType, fence)
	if err != nil {
		return fmt.Errorf("look for entities of type %s, whose kind or encoding the module changes: %w", o.EntityType, err)
	}
	if !found {
		return nil
	}
	return &status.RefusedError{
		Reason: fmt.Sprintf("entity type %s is %s with %s payloads and has entities, but the module declares %s with %s payloads and could not read them: delete the entities, or use a different type name",
			o.EntityType, o.was.Kind, o.was.Encoding, o.next.Kind, o.next.Encoding),
		Name: status.RefusedKind,
		About: map[string]string{
			"entityType": o.EntityType, "kind": string(o.was.Kind), "encoding": string(o.was.Encoding),
			"declaredKind": string(o.next.Kind), "declaredEncoding": string(o.next.Encoding),
		},
	}
}
