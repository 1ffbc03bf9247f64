package modules

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Rollback reverts an activation, for all types that switched between the
// same two modules. It prepares the previous module like a module that is
// activated. Then t.Check checks the entities that it will read, and all the
// types switch back at once.
func (s *Service) Rollback(ctx context.Context, t TakeBack) (Rollback, error) {
	entityType, revision := t.EntityType, t.Revision
	if err := s.metadata.CatchUp(ctx); err != nil {
		return Rollback{}, err
	}
	view := s.metadata.View()
	b, bound := view.Activation(entityType)
	if revision == 0 {
		revision = b.Revision
	}
	if !bound {
		return Rollback{}, request.ErrUnknownType
	}
	now := Rollback{Digest: journal.Digest(b.Digest), Revision: b.Revision, Types: []string{entityType}}
	as, err := checkOwner(ctx, view, b, entityType, back(b, revision), t.Approver)
	switch {
	case err != nil:
		return Rollback{}, err
	case view.ClusterVersion() < sharding.VersionRollbackOf:
		return Rollback{}, &status.RefusedError{Reason: sharding.VersionRollbackOf.NeededBy("a rollback needs", view.ClusterVersion())}
	case b.TookBack == revision:
		return now, s.awaitServed(ctx, b.Revision)
	case b.Rollout.IsVerifying():
		return Rollback{}, verifies(b)
	case b.Revision != revision:
		return Rollback{}, &status.RefusedError{Reason: fmt.Sprintf("%s is served under revision %d, not %d: a different module or different limits were activated", entityType, b.Revision, revision)}
	case len(b.History) == 0 && b.Rollout.IsActive():
		return Rollback{}, &status.RefusedError{Reason: fmt.Sprintf("module %.12s serves a part of %s, and there is no previous module of the type: end the rollout with 'hostd module rollout %s --abort'", b.Rollout.Digest, entityType, entityType)}
	case len(b.History) == 0:
		return Rollback{}, &status.RefusedError{Reason: fmt.Sprintf("there is no previous module of %s", entityType)}
	}
	now.Digest = back(b, revision)
	m, err := s.modules.ToRun(ctx, now.Digest, "")
	if err != nil {
		return Rollback{}, err
	}
	if err := s.checkClusterVersion(m.Manifest()); err != nil {
		return Rollback{}, err
	}
	going := []meta.Activation{b}
	var also []meta.TakeBack
	for _, o := range together(view, b) {
		owner, err := ownership(ctx, view, o, o.EntityType, now.Digest, t.Approver)
		if err != nil {
			return Rollback{}, err
		}
		also = append(also, meta.TakeBack{EntityType: o.EntityType, Revision: o.Revision, Owner: owner})
		going, now.Types = append(going, o), append(now.Types, o.EntityType)
	}
	slices.Sort(now.Types)
	kept := kinds{writePauses: writePauses{Service: s}, module: m}
	if err := takeBackable(ctx, &kept, going, t); err != nil {
		return Rollback{}, err
	}
	proved, err := s.proveAll(ctx, going, m, t.Truncated, t.By)
	if err != nil {
		return Rollback{}, err
	}
	now.Revision, err = s.rebind(ctx, now.Digest, func(ctx context.Context) ([]byte, error) {
		forcedBy, err := kept.lastLook(ctx, now.Digest, going, t.Check)
		if err != nil {
			return nil, err
		}
		proof, err := proved.last(ctx, &kept.writePauses, view)
		if err != nil {
			return nil, err
		}
		forcedBy = cmp.Or(forcedBy, proof)
		return as(by(view, t.By, meta.RollbackWith(entityType, revision, time.Now().UnixNano(), forcedBy, also...))), kept.lookAgain(ctx, view)
	})
	kept.release(ctx, err)
	return now, refusedError(err)
}

// lastLook checks the entities of types that are about to switch back. The
// first check covers all entities and runs while writes continue. The second
// check runs while the types are write-paused and covers the entities written
// since, because otherwise the previous module would read them unchecked. A
// type whose first check was forced is not paused; forcedBy is the principal
// that forced it.
func (h *writePauses) lastLook(ctx context.Context, digest journal.Digest, going []meta.Activation, check func(context.Context, RollbackType) (string, error)) (forcedBy string, err error) {
	if check == nil {
		return "", nil
	}
	var again []RollbackType
	for _, g := range going {
		t := RollbackType{Name: g.EntityType, Digest: digest, Before: before(g)}
		if g.First != nil {
			t.First = *g.First
		}
		by, err := check(ctx, t)
		if err != nil {
			return "", err
		}
		if by != "" {
			forcedBy = by
			continue
		}
		t.Fence = g.Revision
		again = append(again, t)
	}
	ctx, cancel := context.WithTimeout(ctx, pauseTime)
	defer cancel()
	for i := range again {
		t := &again[i]
		if t.Fence, err = h.pause(ctx, t.Name, t.Fence); err != nil {
			return "", err
		}
	}
	for _, t := range again {
		by, err := check(ctx, t)
		if err != nil {
			return "", fmt.Errorf("check the entities that were written since the switch: %w", err)
		}
		forcedBy = cmp.Or(by, forcedBy)
	}
	return forcedBy, nil
}

// takeBackable returns an error if the module does not start, or would misread
// stored entities.
func takeBackable(ctx context.Context, kept *kinds, going []meta.Activation, t TakeBack) error {
	for _, g := range going {
		if err := startsWithin(ctx, kept.module, g.Limits); err != nil {
			return err
		}
		if err := kept.look(ctx, g, t.Entities); err != nil {
			return err
		}
	}
	return nil
}

// together returns the activations of the other types that switch back with
// b: the activations with the same serving module and the same previous
// module.
func together(view *meta.View, b meta.Activation) (out []meta.Activation) {
	for _, o := range view.Activations() {
		if o.EntityType != b.EntityType && o.Digest == b.Digest && len(o.History) > 0 && o.History[len(o.History)-1].Digest == b.History[len(b.History)-1].Digest {
			out = append(out, o)
		}
	}
	return out
}

// before returns the modules whose events the previous module of b knows:
// itself, and modules that served before it but not after it.
func before(b meta.Activation) (out []journal.Digest) {
	to := b.History[len(b.History)-1]
	since := map[meta.Digest]bool{b.Digest: true}
	for _, c := range b.ChangeLog() {
		if c.Revision > to.Revision {
			since[c.Digest] = true
		}
	}
	delete(since, to.Digest)
	for _, h := range b.History {
		if d := journal.Digest(h.Digest); !since[h.Digest] && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// back returns the module that serves the type once the revision is reverted.
func back(b meta.Activation, revision uint64) journal.Digest {
	if n := len(b.History); n > 0 && b.TookBack != revision {
		return journal.Digest(b.History[n-1].Digest)
	}
	return journal.Digest(b.Digest)
}

// TakeBack requests that the previous module of an entity type serves it again.
type TakeBack struct {
	EntityType string
	Revision   uint64         // the revision to revert; 0 means the current one
	By         string         // principal, as in an Activation
	Entities   storedEntities // as in an Activation
	Approver   approver       // as in an Activation
	// Check is called for each type that switches back, once every node has the
	// module. It returns an error, or the principal that forced the check. If
	// it returns neither, it is called again while the type is write-paused.
	// nil skips the check.
	Check func(ctx context.Context, t RollbackType) (forcedBy string, err error)
	Truncated
}

// Rollback is the result of a rollback.
type Rollback struct {
	Digest   journal.Digest // the module that serves now
	Revision uint64         // revision of the new activation
	Types    []string       // all types that switched back, sorted
}

// RollbackType is a type that switches back to its previous module.
type RollbackType struct {
	Name   string
	Digest journal.Digest // the previous module
	// Before lists the modules whose events the previous module knows: itself,
	// and modules that served before it but not after it.
	Before []journal.Digest
	// First is the part of the type that the current module served first; zero
	// means all.
	First meta.Part
	// Fence is the revision of the write pause. It is 0 during the first check.
	Fence uint64
}
