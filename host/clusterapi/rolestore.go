package clusterapi

import (
	"context"
	"errors"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

// roleStore implements RoleStore.
type roleStore struct{ *Parts }

func (s roleStore) Roles() ([]access.Role, uint64, error) {
	if !s.CaughtUp.Load() {
		return nil, 0, request.ErrNotReady
	}
	view := s.Metadata.View()
	return view.Roles(), view.RoleRevision(), nil
}

func (s roleStore) RoleBindings() ([]access.Binding, uint64, error) {
	if !s.CaughtUp.Load() {
		return nil, 0, request.ErrNotReady
	}
	view := s.Metadata.View()
	return view.RoleBindings(), view.RoleRevision(), nil
}

func (s roleStore) PutRole(ctx context.Context, r access.Role) (uint64, error) {
	if err := r.Check(); err != nil {
		return 0, &InvalidRoleError{Reason: err.Error()}
	}
	return s.do(ctx, meta.PutRole(r))
}

func (s roleStore) DeleteRole(ctx context.Context, name string) (uint64, error) {
	return s.do(ctx, meta.DeleteRole(name))
}

func (s roleStore) PutRoleBinding(ctx context.Context, b access.Binding) (uint64, error) {
	if err := b.Check(); err != nil {
		return 0, &InvalidRoleError{Reason: err.Error()}
	}
	return s.do(ctx, meta.PutRoleBinding(b))
}

func (s roleStore) DeleteRoleBinding(ctx context.Context, subject string) (uint64, error) {
	return s.do(ctx, meta.DeleteRoleBinding(subject))
}

func (s roleStore) Tokens() ([]Token, uint64, error) {
	if !s.CaughtUp.Load() {
		return nil, 0, request.ErrNotReady
	}
	view, now := s.Metadata.View(), s.Now().Unix()
	var out []Token
	for _, t := range view.Tokens() {
		out = append(out, Token{Token: t, Roles: view.RolesOf(t.Subject()), Expired: t.Expires != 0 && t.Expires <= now})
	}
	return out, view.RoleRevision(), nil
}

func (s roleStore) PutToken(ctx context.Context, t access.Token, names []string) (uint64, error) {
	now := s.Now()
	t.CreatedAt = now.UnixNano()
	if err := errors.Join(t.Check(), access.Binding{Subject: t.Subject(), Roles: names}.Check()); err != nil {
		return 0, &InvalidRoleError{Reason: err.Error()}
	}
	if t.Expires != 0 && t.Expires <= now.Unix() {
		return 0, &InvalidRoleError{Reason: "the token has already expired according to this node's clock"}
	}
	return s.do(ctx, meta.PutToken(t, names...))
}

func (s roleStore) DeleteToken(ctx context.Context, name string) (uint64, error) {
	if err := access.CheckTokenName(name); err != nil {
		return 0, &InvalidRoleError{Reason: err.Error()}
	}
	return s.do(ctx, meta.DeleteToken(name))
}

// do runs a change and returns its revision. It first checks the cluster
// version, because a replica of the previous release would stop if it applied
// such a command.
func (s roleStore) do(ctx context.Context, command []byte) (uint64, error) {
	if err := s.Metadata.CatchUp(ctx); err != nil {
		return 0, err
	}
	if version := s.Metadata.ClusterVersion(); version < sharding.VersionRoles {
		return 0, &status.RefusedError{Reason: sharding.VersionRoles.NeededBy("roles and tokens need", version)}
	}
	res, err := s.Metadata.Do(ctx, command)
	switch {
	case errors.Is(err, meta.ErrInvalid):
		return 0, &InvalidRoleError{Reason: err.Error()}
	case errors.Is(err, meta.ErrConflict), errors.Is(err, meta.ErrClusterVersion):
		return 0, &status.RefusedError{Reason: err.Error()}
	case err != nil:
		return 0, err
	}
	// The change is applied on the metadata leader. Wait until it is applied
	// here too, because the caller may read it next.
	return res.Revision, s.Metadata.CatchUp(ctx)
}
