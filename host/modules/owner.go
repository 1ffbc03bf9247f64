package modules

import (
	"context"
	"errors"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Owner returns the subject that owns a type, or "" for none. It waits until
// this node has applied all earlier metadata decisions. It fails with
// request.ErrUnknownType if nothing serves the type.
func (s *Service) Owner(ctx context.Context, entityType string) (string, error) {
	if err := s.metadata.CatchUp(ctx); err != nil {
		return "", err
	}
	b, bound := s.metadata.View().Activation(entityType)
	if !bound {
		return "", request.ErrUnknownType
	}
	return b.Owner, nil
}

// SetOwner changes or removes the owner of a type, if allow permits it.
func (s *Service) SetOwner(ctx context.Context, entityType, owner string, allow func(ctx context.Context, was string) error) error {
	for try := 1; ; try++ {
		was, err := s.Owner(ctx, entityType)
		if err != nil {
			return err
		}
		if err := allow(ctx, was); err != nil {
			return err
		}
		if version := s.metadata.View().ClusterVersion(); version < sharding.VersionOwners {
			return &status.RefusedError{Reason: sharding.VersionOwners.NeededBy("type owners need", version)}
		}
		_, err = s.metadata.Do(ctx, meta.PutTypeOwner(entityType, meta.Ownership{Was: was, Is: owner}))
		if err == nil {
			return s.metadata.CatchUp(ctx)
		}
		if !errors.Is(err, meta.ErrConflict) || try == replaceTries {
			return refusedError(err)
		}
	}
}

// ownersOf compares the owners of other types with the owner of one type.
type ownersOf struct {
	types *Types
	to    string
}

// IsForeign reports whether a type has a different owner.
func (o ownersOf) IsForeign(entityType string) bool {
	return o.types.metadata.View().IsForeign(o.to, entityType)
}

// checkOwner checks whether the module may serve b's type, which is entityType.
// The returned function adds the resulting owner to the command that activates
// the module.
func checkOwner(ctx context.Context, view *meta.View, b meta.Activation, entityType string, digest journal.Digest, by approver) (func([]byte) []byte, error) {
	o, err := ownership(ctx, view, b, entityType, digest, by)
	return func(command []byte) []byte {
		if o == nil {
			return command
		}
		return meta.WithOwner(command, *o)
	}, err
}

// ownership checks whether the module may serve b's type and returns the change
// of its owner; nil keeps the owner.
func ownership(ctx context.Context, view *meta.View, b meta.Activation, entityType string, digest journal.Digest, by approver) (*meta.Ownership, error) {
	if by == nil {
		return nil, nil
	}
	m, _ := view.Module(meta.Digest(digest))
	owner, err := by.Approve(ctx, Rebinding{EntityType: entityType, Owner: b.Owner, Types: m.EntityTypes})
	if err != nil || view.ClusterVersion() < sharding.VersionOwners {
		return nil, err
	}
	return &meta.Ownership{Was: b.Owner, Is: owner}, nil
}
