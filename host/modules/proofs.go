package modules

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// A module that takes the place of another one on a type with truncated
// histories must read the snapshots that are all that is left of them. Whether
// it does is compared on every such entity, twice: first while commands run, as
// long as that takes, and then while the type is held, for what has changed
// since. The second result is put into the metadata under the revision that
// serves, and the binding made over that revision takes the list of modules
// from it. Without that record the module loads none of these snapshots, and
// the entities fail with request.ErrCut: nothing of them is lost.

// shownProofs is how many entities a refusal names.
const shownProofs = 16

// proof has the cluster record whose snapshots a module loads in the place of
// the one that serves a type.
type proof struct {
	*Service
	b      meta.Binding
	digest journal.Digest
	accept bool // another state than before is meant
	force  bool // without a proof the module serves all the same
	by     string
	remark func(string)
	always bool // the result is recorded even if no snapshots are named

	needed    bool // the second look is to be made
	snapshots bool // all snapshots of the serving module are to be loaded
	forcedBy  string
}

// proving makes the first look. It refuses a module that fails on an entity or
// makes another state of one.
func (s *Service) proving(ctx context.Context, b meta.Binding, m *guest.Module, p proof) (*proof, error) {
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
	if n := found.GetUnreadable(); n > 0 && p.remark != nil {
		p.remark(fmt.Sprintf("%s: %d entities whose first events are gone cannot be read by the module that serves either; they still fail, and nothing of them is lost", b.EntityType, n))
	}
	p.needed = p.needed || p.snapshots || found.GetEntities() > 0 || s.retains(b.EntityType)
	return &p, nil
}

// comparable reports that another module than m serves b's type, and that both
// make states of its events.
func (s *Service) comparable(ctx context.Context, b meta.Binding, m *guest.Module) (bool, error) {
	if s.look == nil || b.Digest == meta.Digest(m.Digest()) {
		return false, nil
	}
	serving, err := s.modules.Module(ctx, journal.Digest(b.Digest), "")
	if err != nil {
		return false, fmt.Errorf("compare with the module that serves: %w", err)
	}
	was, _, one := serving.Manifest().Type(b.EntityType)
	next, _, other := m.Manifest().Type(b.EntityType)
	return one && other && was.Kind == manifest.EventSourced && next.Kind == manifest.EventSourced && was.Encoding == next.Encoding, nil
}

// retains reports that snapshots of the type truncate histories.
func (s *Service) retains(entityType string) bool {
	t := s.types.Served(entityType)
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

// leaderPatience is how long a comparison waits for shards without a leader.
const leaderPatience = 5 * time.Second

// compare looks at all shards, and refuses what was not looked at whole, and
// what does not fit unless that is forced. Shards that elect a leader are looked
// at again; one that has taken the time for a look is not.
func (p *proof) compare(ctx context.Context, fence uint64) (*modulev1.FitResponse, error) {
	began := time.Now()
	for {
		found, err := p.look(ctx, FitQuery{EntityType: p.b.EntityType, Digest: p.digest, Budget: lookTime, Fence: fence, Truncated: true, Snapshots: p.snapshots, Accept: p.accept})
		if err != nil {
			return nil, fmt.Errorf("compare entities of %s whose first events are gone: %w", p.b.EntityType, err)
		}
		if found.GetUnreadShards() > 0 && time.Since(began) < leaderPatience {
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
		case p.snapshots: // those that have all events are replayed from them
			p.snapshots = false
		case !p.force:
			return nil, refused
		case p.metadata.View().ClusterVersion() < sharding.VersionSnapshotProofs:
			refused.Reason += fmt.Sprintf("; that is forced from level %d of the cluster on, before it the module would load these snapshots: hostd cluster upgrade finalize", sharding.VersionSnapshotProofs)
			return nil, refused
		default:
			p.forcedBy, p.needed = p.by, false
			if p.forcedBy == "" {
				p.forcedBy = "force"
			}
			if p.remark != nil {
				p.remark(refused.Reason + "; entities whose first events are gone fail from now on unless the module has a snapshot of its own, and nothing of them is lost")
			}
			return found, nil
		}
	}
}

// refusal is nil where the module reads the states of all that was compared.
func (p *proof) refusal(found *modulev1.FitResponse) *status.RefusedError {
	about := map[string]string{"entityType": p.b.EntityType}
	refuse := func(name, format string, args ...any) *status.RefusedError {
		return &status.RefusedError{Reason: p.b.EntityType + ": " + fmt.Sprintf(format, args...), Name: name, About: about}
	}
	shown := func(list []*modulev1.FitResponse_Fault, n uint64) string {
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
	case found.GetFailing() > 0:
		return refuse(status.RefusedFault, "the first events of entities are gone, and the module fails on the snapshots of %d of %d that are left: %s", found.GetFailing(), found.GetEntities(), shown(found.GetFaults(), found.GetFailing()))
	case found.GetDiffering() > 0 && !p.accept:
		return refuse(status.RefusedFault, "the first events of entities are gone, and the module makes another state of the snapshots of %d of %d that are left; if that is meant, accept the differences: %s", found.GetDiffering(), found.GetEntities(), shown(found.GetDifferences(), found.GetDiffering()))
	case len(found.GetSnapshotsOf()) > meta.MaxTruncatedModules:
		return refuse(status.RefusedFault, "snapshots of %d modules stand for entities whose first events are gone, and a module loads those of %d at most", len(found.GetSnapshotsOf()), meta.MaxTruncatedModules)
	case found.GetUnreadShards() > 0:
		return refuse(status.RefusedUnverified, "entities whose first events are gone were not all compared, in %d shards, for want of time or of a leader; the next call continues", found.GetUnreadShards())
	}
	return nil
}

// proofs are those of types that go together.
type proofs []*proof

// proveAll makes the first look at each type.
func (s *Service) proveAll(ctx context.Context, going []meta.Binding, m *guest.Module, t Truncated, by string) (all proofs, err error) {
	if !t.Prove {
		return nil, nil
	}
	for _, g := range going {
		p, err := s.proving(ctx, g, m, proof{accept: t.Accept, force: t.Force, by: by, remark: t.Remark})
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// last makes the second look at each type. It says who forces one.
func (all proofs) last(ctx context.Context, h *holds, view *meta.View) (forcedBy string, err error) {
	for _, p := range all {
		by, err := p.last(ctx, h, view)
		if err != nil {
			return "", err
		}
		forcedBy = cmp.Or(forcedBy, by)
	}
	return forcedBy, nil
}

// last makes the second look, while the type is held, and records what it has
// found. It says who forces the module without a proof.
func (p *proof) last(ctx context.Context, h *holds, view *meta.View) (forcedBy string, err error) {
	holdable := view.ClusterVersion() >= sharding.VersionWritePauses && !p.b.Rollout.IsActive() || view.ClusterVersion() >= sharding.VersionSnapshotProofs
	if !p.needed || !holdable {
		return p.forcedBy, nil
	}
	ctx, cancel := context.WithTimeout(ctx, holdTime)
	defer cancel()
	held, err := h.hold(ctx, p.b.EntityType, p.b.Revision)
	if err != nil {
		return "", err
	}
	found, err := p.compare(ctx, held)
	if err != nil || p.forcedBy != "" {
		return p.forcedBy, err
	}
	if view.ClusterVersion() < sharding.VersionSnapshotProofs || len(found.GetSnapshotsOf()) == 0 && !p.snapshots && !p.always {
		return "", nil
	}
	return "", p.record(ctx, view, found)
}

// record has the metadata keep what was found while the type is held.
func (p *proof) record(ctx context.Context, view *meta.View, found *modulev1.FitResponse) error {
	v, ok := view.VerificationResult(p.b.EntityType, meta.Digest(p.digest))
	if !ok || v.Revision != p.b.Revision {
		v = meta.VerificationResult{Digest: meta.Digest(p.digest), Revision: p.b.Revision, By: p.by, Entities: found.GetEntities(), Differences: found.GetDiffering()}
	}
	v.At, v.Snapshots, v.Proved, v.Truncated = time.Now().UnixNano(), p.snapshots, true, nil
	for _, text := range found.GetSnapshotsOf() {
		var d meta.Digest
		if err := d.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("keep whose snapshots a module reads: %w", err)
		}
		if d != v.Digest {
			v.Truncated = append(v.Truncated, d)
		}
	}
	_, _, err := p.repeat(ctx, meta.PutVerificationResult(p.b.EntityType, v))
	return err
}
