package modules

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Owner implements rpc.Modules.
func (s *Service) Owner(ctx context.Context, entityType string) (string, error) {
	if err := s.metadata.CatchUp(ctx); err != nil {
		return "", err
	}
	b, bound := s.metadata.View().Binding(entityType)
	if !bound {
		return "", request.ErrUnknownType
	}
	return b.Owner, nil
}

// SetOwner implements rpc.Modules.
func (s *Service) SetOwner(ctx context.Context, entityType, owner string, allow func(ctx context.Context, was string) error) error {
	for try := 1; ; try++ {
		was, err := s.Owner(ctx, entityType)
		if err != nil {
			return err
		}
		if err := allow(ctx, was); err != nil {
			return err
		}
		if level := s.metadata.View().Level(); level < sharding.LevelOwners {
			return &rpc.RefusedError{Reason: fmt.Sprintf("the cluster is at level %d, owners of types are of level %d: hostd cluster raise-level", level, sharding.LevelOwners)}
		}
		_, err = s.metadata.Do(ctx, meta.PutTypeOwner(entityType, meta.Ownership{Was: was, Is: owner}))
		if err == nil {
			return s.metadata.CatchUp(ctx)
		}
		if !errors.Is(err, meta.ErrConflict) || try == replaceTries {
			return refused(err)
		}
	}
}

// owned asks whether the module may serve b's type, which is entityType, and
// has the command that makes it so keep or take the type's owner.
func owned(ctx context.Context, view *meta.View, b meta.Binding, entityType string, digest journal.Digest, allow rpc.Allow) (func([]byte) []byte, error) {
	as := func(command []byte) []byte { return command }
	if allow == nil {
		return as, nil
	}
	m, _ := view.Module(meta.Digest(digest))
	owner, err := allow(ctx, rpc.Rebinding{EntityType: entityType, Owner: b.Owner, Types: m.EntityTypes})
	if err != nil || view.Level() < sharding.LevelOwners {
		return as, err
	}
	return func(command []byte) []byte {
		return meta.Owned(command, meta.Ownership{Was: b.Owner, Is: owner})
	}, nil
}

// back is the module that serves the type when the revision was taken back.
func back(b meta.Binding, revision uint64) journal.Digest {
	if n := len(b.History); n > 0 && b.TookBack != revision {
		return journal.Digest(b.History[n-1].Digest)
	}
	return journal.Digest(b.Digest)
}
