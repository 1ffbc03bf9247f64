package modules

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// quotaError reports that a quota leaves no room for the module.
type quotaError struct{ text string }

func (e *quotaError) Error() string {
	return e.text + "; 'hostd module rm' removes unused modules, and 'hostd module quotas' shows the quotas"
}

// Code implements status.Coded.
func (e *quotaError) Code() connect.Code { return connect.CodeResourceExhausted }

// Quotas returns the quotas and the current use; by is the uploader whose
// modules are counted.
func (s *Service) Quotas(by string) Quotas {
	view := s.metadata.View()
	return Quotas{
		Used: Amounts(view.ModuleUse(by)), Limit: Amounts(view.ModuleQuotas()), Retention: view.ModuleRetention(),
	}
}

// Remove removes a module from the metadata, if allow permits it for the
// module's types. It fails with a *status.RefusedError if the module is still
// needed.
func (s *Service) Remove(ctx context.Context, digest journal.Digest, allow func(ctx context.Context, entityTypes []string) error) error {
	m, err := s.findModule(ctx, digest)
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
	s.modules.noteUploader(digest, m.Uploader) // its file still takes room
	// The next request to this node must see the removal.
	return s.metadata.CatchUp(ctx)
}
