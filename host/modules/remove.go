package modules

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// quotaError says that there is no room for another module.
type quotaError struct{ text string }

func (e *quotaError) Error() string {
	return e.text + "; hostd module rm removes those that are not needed, and hostd module quotas shows what is allowed"
}

// Code implements status.Coded.
func (e *quotaError) Code() connect.Code { return connect.CodeResourceExhausted }

// Quotas are those of uploads; by is whose uploads are counted.
func (s *Service) Quotas(by string) Quotas {
	view := s.metadata.View()
	return Quotas{
		Used: Amounts(view.ModuleUse(by)), Most: Amounts(view.ModuleQuotas()), Retention: view.ModuleRetention(),
	}
}

// Remove has a module forgotten, once allow has nothing against it for the
// types that it has. It is a *status.RefusedError where something needs the module.
func (s *Service) Remove(ctx context.Context, digest journal.Digest, allow func(ctx context.Context, entityTypes []string) error) error {
	m, err := s.known(ctx, digest)
	if err != nil {
		return err
	}
	if err := allow(ctx, m.EntityTypes); err != nil {
		return err
	}
	_, err = s.metadata.Do(ctx, meta.RemoveModule(meta.Digest(digest)))
	if errors.Is(err, meta.ErrConflict) || errors.Is(err, meta.ErrClusterVersion) {
		return &status.RefusedError{Reason: err.Error()}
	}
	if err != nil {
		return err
	}
	// Whoever asks this node next is told so.
	return s.metadata.CatchUp(ctx)
}
