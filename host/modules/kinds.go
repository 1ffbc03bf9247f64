package modules

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// replaceTries bounds how often an activation looks again because another one
// came between.
const replaceTries = 4

// replace has the module serve in the place of the one that does, once it is
// known to fit what is stored. It names the revision that it has looked at, so
// that no other is bound meanwhile unseen.
func (s *Service) replace(ctx context.Context, m *engine.Module, a rpc.Activation) (uint64, error) {
	for try := 1; ; try++ {
		if err := s.metadata.CatchUp(ctx); err != nil {
			return 0, err
		}
		view := s.metadata.View()
		b, bound := view.Binding(a.EntityType)
		as, err := owned(ctx, view, b, a.EntityType, a.Digest, a.Allow)
		if err != nil {
			return 0, err
		}
		if bound {
			if err := s.keeps(ctx, b, m, a.Stored); err != nil {
				return 0, err
			}
		}
		revision, err := s.rebind(ctx, a.Digest, func(context.Context) ([]byte, error) { return as(by(view, a.By, order(view, b, a))), nil })
		if !errors.Is(err, meta.ErrConflict) || try == replaceTries {
			return revision, refused(err)
		}
	}
}

// refused is what callers are told of a command that does not fit the metadata.
func refused(err error) error {
	if errors.Is(err, meta.ErrShardKey) || errors.Is(err, meta.ErrConflict) {
		return &rpc.RefusedError{Reason: err.Error()}
	}
	if errors.Is(err, meta.ErrUnknownModule) {
		return request.ErrUnknownModule // it was removed meanwhile
	}
	return err
}

// order is the command that binds in the place of b, which is the zero Binding
// for a type that nothing serves.
func order(view *meta.View, b meta.Binding, a rpc.Activation) []byte {
	digest, at := meta.Digest(a.Digest), time.Now().UnixNano()
	switch {
	case view.Level() >= sharding.LevelBindOver:
		return meta.BindForced(a.EntityType, digest, at, b.Revision, (*meta.Limits)(a.Limits), a.ForcedBy)
	case a.Limits != nil:
		return meta.BindLimited(a.EntityType, digest, at, meta.Limits(*a.Limits))
	default:
		return meta.Bind(a.EntityType, digest, at)
	}
}

// keeps refuses a module that would read the stored entities of a type in
// another way than they were written: their last event as a state, a state as
// an event, or payloads that are no JSON. Where none are stored it may.
func (s *Service) keeps(ctx context.Context, b meta.Binding, m *engine.Module, stored rpc.Stored) error {
	if stored == nil || b.Digest == meta.Digest(m.Digest()) {
		return nil
	}
	now, err := s.modules.Module(ctx, journal.Digest(b.Digest), "")
	if err != nil {
		return fmt.Errorf("compare with the module that serves: %w", err)
	}
	was, _, one := now.Manifest().Type(b.EntityType)
	next, _, other := m.Manifest().Type(b.EntityType)
	if !one || !other || was.Kind == next.Kind && was.Encoding == next.Encoding || was.Kind == manifest.Transient {
		return nil // of a transient type nothing is stored
	}
	found, err := stored(ctx)
	if err != nil {
		return fmt.Errorf("look for entities of type %s, of which the module says that they are kept in another way: %w", b.EntityType, err)
	}
	if !found {
		return nil
	}
	return &rpc.RefusedError{
		Reason: fmt.Sprintf("entity type %s is %s with payloads of %s and has entities; the module says %s with payloads of %s, and would not read them: delete them, or name its type otherwise",
			b.EntityType, was.Kind, was.Encoding, next.Kind, next.Encoding),
		Name: rpc.RefusedKind,
		About: map[string]string{
			"entityType": b.EntityType, "kind": string(was.Kind), "encoding": string(was.Encoding),
			"declaredKind": string(next.Kind), "declaredEncoding": string(next.Encoding),
		},
	}
}
