package modules

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Proofs for truncated histories.
//
// If the first events of an entity are gone, only its snapshots are left. A
// module that replaces another module on such a type must be able to read the
// other module's snapshots. That is proved by comparing both modules on every
// such entity, twice: first while commands run, for as long as it takes, and
// then, for the entities changed since, while the type is write-paused. The
// second result is recorded in the metadata under the serving revision, and
// an activation over that revision takes the list of readable modules from
// it. Without that record the new module loads none of these snapshots, and
// the entities fail with request.ErrCompacted; no data is lost.

// shownProofs is the maximum number of entities that an error names.
const shownProofs = 16

// proof proves and records whose snapshots a module can load if it replaces the
// serving module of a type.
type proof struct {
	*Service
	b      meta.Activation
	digest journal.Digest
	accept bool // accept differing states as intended
	force  bool // activate the module even without a proof
	by     string
	warn   func(string)
	always bool // record the result even if it lists no snapshots

	needed    bool // the second comparison must be made
	snapshots bool // the module is meant to load all snapshots of the serving module
	forcedBy  string
}

// proving makes the first comparison. It returns an error if the module fails
// on an entity or computes a different state.
func (s *Service) proving(ctx context.Context, b meta.Activation, m *guest.Module, p proof) (*proof, error) {
	p.Service, p.b, p.digest = s, b, m.Digest()
	if comparable, err := s.comparable(ctx, b, m); err != nil || !comparable {
		return &p, err
	}
	v, ok := s.metadata.View().VerificationResult(b.EntityType, meta.Digest(p.digest))
	p.snapshots = ok && v.Snapshots && v.Revision == b.Revision
	found, err := p.compare(ctx, 0)
	if err != nil {
		return nil, err
	}
	if n := found.GetUnreadableEntities(); n > 0 && p.warn != nil {
		p.warn(fmt.Sprintf("%s: the active module cannot read %d entities with truncated events either; they keep failing, and none of their data is lost", b.EntityType, n))
	}
	p.needed = p.needed || p.snapshots || found.GetEntities() > 0 || s.retains(b.EntityType)
	return &p, nil
}

// comparable reports whether a module other than m serves b's type and both
// compute states from events with the same encoding, so that their states can be compared.
func (s *Service) comparable(ctx context.Context, b meta.Activation, m *guest.Module) (bool, error) {
	if s.shards == nil || b.Digest == meta.Digest(m.Digest()) {
		return false, nil
	}
	serving, err := s.modules.Module(ctx, journal.Digest(b.Digest), "")
	if err != nil {
		return false, fmt.Errorf("compare with the active module: %w", err)
	}
	was, _, one := serving.Manifest().Type(b.EntityType)
	next, _, other := m.Manifest().Type(b.EntityType)
	return one && other && was.Kind.IsReplayed() && next.Kind == was.Kind && was.Encoding == next.Encoding, nil
}

// retains reports whether snapshots of the type truncate histories.
func (s *Service) retains(entityType string) bool {
	t := s.types.ServedType(entityType)
	if t == nil {
		return true
	}
	for _, one := range []*Served{t, t.newer} {
		if one != nil {
			if records, _ := one.Retains(s.types.settings.RetentionOverride(entityType)); records > 0 {
				return true
			}
		}
	}
	return false
}

// leaderPatience bounds how long a comparison waits for shards without a
// leader.
const leaderPatience = 5 * time.Second

// compare compares all shards. It returns an error if some shards could not be
// compared, or if the module is incompatible and the caller does not force it.
// Shards without a leader are compared again for up to leaderPatience.
func (p *proof) compare(ctx context.Context, fence uint64) (*modulev1.CheckCompatibilityResponse, error) {
	began := time.Now()
	for {
		found, err := p.shards.Touched(ctx, CompatibilityQuery{EntityType: p.b.EntityType, Digest: p.digest, Budget: lookTime, MinRevision: fence, TruncatedOnly: true, IncludeSnapshots: p.snapshots, AcceptDifferences: p.accept})
		if err != nil {
			return nil, fmt.Errorf("compare entities of %s with truncated events: %w", p.b.EntityType, err)
		}
		if found.GetUncheckedShards() > 0 && time.Since(began) < leaderPatience {
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		refused := p.refusal(found)
		switch {
		case refused == nil:
			return found, nil
		case p.snapshots: // also compare entities with all their events, starting from these snapshots
			p.snapshots = false
		case !p.force:
			return nil, refused
		case p.metadata.View().ClusterVersion() < sharding.VersionSnapshotProofs:
			refused.Reason += fmt.Sprintf("; --force overrides this only from cluster version %d on, because the module would load these snapshots before: run 'hostd cluster upgrade finalize'", sharding.VersionSnapshotProofs)
			return nil, refused
		default:
			p.forcedBy, p.needed = p.by, false
			if p.forcedBy == "" {
				p.forcedBy = "force"
			}
			if p.warn != nil {
				p.warn(refused.Reason + "; entities with truncated events fail unless the module has its own snapshot of them, and none of their data is lost")
			}
			return found, nil
		}
	}
}

// refusal returns the reason to reject the module, or nil if the module reads
// the states of all compared entities.
func (p *proof) refusal(found *modulev1.CheckCompatibilityResponse) *status.RefusedError {
	about := map[string]string{"entityType": p.b.EntityType}
	refuse := func(name, format string, args ...any) *status.RefusedError {
		return &status.RefusedError{Reason: p.b.EntityType + ": " + fmt.Sprintf(format, args...), Name: name, About: about}
	}
	shown := func(list []*modulev1.CheckCompatibilityResponse_Fault, n uint64) string {
		var out []string
		for _, f := range list[:min(shownProofs, len(list))] {
			out = append(out, fmt.Sprintf("%s at event %d: %s", f.GetEntityId(), f.GetSequence(), f.GetMessage()))
		}
		if more := n - uint64(len(out)); more > 0 {
			out = append(out, fmt.Sprintf("%d more", more))
		}
		return strings.Join(out, "; ")
	}
	switch {
	case found.GetFaultyEntities() > 0:
		return refuse(status.RefusedFault, "the module fails on the snapshots of %d of %d entities with truncated events: %s", found.GetFaultyEntities(), found.GetEntities(), shown(found.GetFaults(), found.GetFaultyEntities()))
	case found.GetDifferingEntities() > 0 && !p.accept:
		return refuse(status.RefusedFault, "the module computes a different state from the snapshots of %d of %d entities with truncated events; if that is intended, accept the differences: %s", found.GetDifferingEntities(), found.GetEntities(), shown(found.GetDifferences(), found.GetDifferingEntities()))
	case len(found.GetSnapshotDigests()) > meta.MaxTruncatedModules:
		return refuse(status.RefusedFault, "entities with truncated events have snapshots of %d modules, but a module can load those of at most %d", len(found.GetSnapshotDigests()), meta.MaxTruncatedModules)
	case found.GetUncheckedShards() > 0:
		return refuse(status.RefusedUnverified, "not all entities with truncated events were compared: %d shards had no leader or not enough time; the next call continues", found.GetUncheckedShards())
	}
	return nil
}

// proofs are the proofs of types whose activations change together.
type proofs []*proof

// proveAll makes the first comparison for each type.
func (s *Service) proveAll(ctx context.Context, going []meta.Activation, m *guest.Module, t Truncated, by string) (all proofs, err error) {
	if !t.Prove {
		return nil, nil
	}
	for _, g := range going {
		p, err := s.proving(ctx, g, m, proof{accept: t.Accept, force: t.Force, by: by, warn: t.Warn})
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// last makes the second comparison for each type. If a module was activated
// without a proof, it returns the principal that forced this.
func (all proofs) last(ctx context.Context, h *writePauses, view *meta.View) (forcedBy string, err error) {
	for _, p := range all {
		by, err := p.last(ctx, h, view)
		if err != nil {
			return "", err
		}
		forcedBy = cmp.Or(forcedBy, by)
	}
	return forcedBy, nil
}

// last makes the second comparison, while the type is write-paused, and records
// the result. If the module is activated without a proof, it returns the
// principal that forced this.
func (p *proof) last(ctx context.Context, h *writePauses, view *meta.View) (forcedBy string, err error) {
	holdable := view.ClusterVersion() >= sharding.VersionWritePauses && !p.b.Rollout.IsActive() || view.ClusterVersion() >= sharding.VersionSnapshotProofs
	if !p.needed || !holdable {
		return p.forcedBy, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pauseTime)
	defer cancel()
	held, err := h.pause(ctx, p.b.EntityType, p.b.Revision)
	if err != nil {
		return "", err
	}
	found, err := p.compare(ctx, held)
	if err != nil || p.forcedBy != "" {
		return p.forcedBy, err
	}
	if view.ClusterVersion() < sharding.VersionSnapshotProofs || len(found.GetSnapshotDigests()) == 0 && !p.snapshots && !p.always {
		return "", nil
	}
	return "", p.record(ctx, view, found)
}

// record stores the result in the metadata while the type is write-paused.
func (p *proof) record(ctx context.Context, view *meta.View, found *modulev1.CheckCompatibilityResponse) error {
	v, ok := view.VerificationResult(p.b.EntityType, meta.Digest(p.digest))
	if !ok || v.Revision != p.b.Revision {
		v = meta.VerificationResult{Digest: meta.Digest(p.digest), Revision: p.b.Revision, By: p.by, Entities: found.GetEntities(), Differences: found.GetDifferingEntities()}
	}
	v.At, v.Snapshots, v.Proved, v.Truncated = time.Now().UnixNano(), p.snapshots, true, nil
	for _, text := range found.GetSnapshotDigests() {
		var d meta.Digest
		if err := d.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("store whose snapshots a module reads: %w", err)
		}
		if d != v.Digest {
			v.Truncated = append(v.Truncated, d)
		}
	}
	_, _, err := p.repeat(ctx, meta.PutVerificationResult(p.b.EntityType, v))
	return err
}
