package modules

import (
	"context"
	"errors"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// Verification returns the verification that a type requires before the module
// serves it, and the module's verification result. It waits until this node has
// applied all earlier metadata decisions. It fails with request.ErrUnknownType
// if nothing serves the type.
func (s *Service) Verification(ctx context.Context, entityType string, digest journal.Digest) (StoredVerification, error) {
	if err := s.metadata.CatchUp(ctx); err != nil {
		return StoredVerification{}, err
	}
	view := s.metadata.View()
	b, bound := view.Activation(entityType)
	if !bound {
		return StoredVerification{}, request.ErrUnknownType
	}
	kept := StoredVerification{Required: requiredBy(view, entityType), Revision: b.Revision}
	if v, ok := view.VerificationResult(entityType, meta.Digest(digest)); ok {
		kept.Result = resultOf(v)
	}
	return kept, nil
}

// KeepVerified stores a verification result. The error is a
// *status.RefusedError if the type is served under a different revision, or if
// the cluster version is too old to store results.
func (s *Service) KeepVerified(ctx context.Context, entityType string, r VerifyResult) error {
	snapshots, err := s.sameSnapshots(ctx, entityType, r)
	if err != nil {
		return err
	}
	_, err = s.metadata.Do(ctx, meta.PutVerificationResult(entityType, meta.VerificationResult{
		Digest: meta.Digest(r.Digest), Revision: r.Revision, At: r.At.UnixNano(), By: r.By, All: r.All, Snapshots: snapshots, Entities: r.Entities, Events: r.Events,
		Differences: r.Differences, Faults: r.Faults, Uncompared: r.Uncompared, Cut: r.Truncated,
	}))
	if errors.Is(err, meta.ErrConflict) || errors.Is(err, meta.ErrClusterVersion) || errors.Is(err, meta.ErrUnknownModule) || errors.Is(err, meta.ErrUnknownType) {
		return &status.RefusedError{Reason: err.Error()}
	}
	return err
}

// sameSnapshots reports whether a verified module may load the snapshots of the
// serving module as its own: both declare the same state version, and all
// entities and their snapshots were replayed without a difference.
func (s *Service) sameSnapshots(ctx context.Context, entityType string, r VerifyResult) (bool, error) {
	if !r.All || r.Differences+r.Faults+r.Uncompared+r.Truncated > 0 {
		return false, nil
	}
	b, bound := s.metadata.View().Activation(entityType)
	if !bound || b.Revision != r.Revision {
		return false, nil // the command of KeepVerified will be rejected
	}
	m, err := s.modules.Module(ctx, r.Digest, "")
	if err != nil {
		return false, err
	}
	served, err := s.modules.Module(ctx, journal.Digest(b.Digest), "")
	if err != nil {
		return false, err
	}
	return manifest.SameState(m.Manifest(), served.Manifest(), entityType), nil
}

// requiredBy returns the verification that the settings require before another
// module serves a type. A value that this release does not know counts as all.
func requiredBy(view *meta.View, entityType string) VerifyRequired {
	s, ok := view.Setting(settingPrefix + entityType + "." + requireVerifyName)
	if !ok {
		return VerifyOff
	}
	if r := VerifyRequired(s.Value); r.IsValid() {
		return r
	}
	return VerifyAll
}

func resultOf(v meta.VerificationResult) *VerifyResult {
	return &VerifyResult{
		Digest: journal.Digest(v.Digest), Revision: v.Revision, At: time.Unix(0, v.At), By: v.By, All: v.All, Entities: v.Entities, Events: v.Events,
		Differences: v.Differences, Faults: v.Faults, Uncompared: v.Uncompared, Truncated: v.Cut,
	}
}
