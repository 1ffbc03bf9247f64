package modules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/abi/manifest"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Rollouts let modules serve a part of the entities of their types.
//
// Problem: a module must prove itself on a part of the traffic, and the part must
// be able to return to the older module. Each entity may have only one module at
// a time, on whichever node it runs, and a rollout outlives the node and the
// caller that began it.
//
// Approach: which entities the newer module serves is a function of the entity's
// id and of the rollout in the metadata: a prefix, a share of hash buckets that
// only grows, and a list of entities. Each change gets a new revision of the
// activation, and a shard's leader writes the revision to the shard's log before
// the first command under it, so no entity runs the newer module, the older one
// and the newer one again. A caller records the intended state in the metadata.
// The runner on the node that leads the metadata shard takes steps that are due,
// checks rules and completes aborts (run, advance). The states are drawn at
// meta.RolloutState.
//
// Invariant: the runner keeps only times of retries and checks in memory. Every
// step is one metadata command that names the revision it was based on, so a
// step of a replaced leader fails with a conflict and changes nothing.
//
// An abort must not leave entities that the older module cannot read, so it
// has two stages. In the state aborting, the newer module still serves its
// part, and the runner replays, with the older module, the entities that the
// newer module has written. In the state held, the part is write-paused while
// the runner checks the entities written since. Then the entities return to
// the older module, except entities on which the older module fails. Those
// stay with the newer module. The rollout ends in the state aborted if any
// entity stays. If a check cannot be completed in the state held, the rollout
// returns to aborting, so that commands do not wait. A forced abort skips the
// checks.
//
// Rejected: a choice of the module at each load, because a temporary fault would
// move an entity for good; a check after the entities have returned, because some
// would change modules twice; and steps that the caller's command makes, because
// they would end with its connection. See
// docs/decisions/an-abort-pauses-writes-before-it-checks.md.
type Rollouts struct {
	*Service
	now func() time.Time
	// State of the runner, by type.
	late    map[string]retry
	watched map[string]time.Time // when rules were last checked
	held    map[string]pausedSince
}

// Begin returns once every node that is up serves the part. If the module is
// not compatible, the error is a *status.RefusedError.
func (r *Rollouts) Begin(ctx context.Context, b RolloutBegin) (uint64, error) {
	if _, err := r.findModule(ctx, b.Digest); err != nil {
		return 0, err
	}
	m, err := r.modules.ToRun(ctx, b.Digest, "")
	if err != nil {
		return 0, err
	}
	if err := r.checkClusterVersion(m.Manifest()); err != nil {
		return 0, err
	}
	var revision uint64
	err = r.again(ctx, func(view *meta.View) error {
		going, err := begins(view, b.EntityType, m)
		if err != nil {
			return err
		}
		// Check the owners before the module runs on any entity, because it
		// sees the entities it runs on.
		for _, g := range going {
			if _, err := ownership(ctx, view, g, g.EntityType, b.Digest, b.Approver); err != nil {
				return err
			}
		}
		for _, g := range going {
			if err := errors.Join(r.alike(ctx, g, m), startsWithin(ctx, m, g.Limits)); err != nil {
				return err
			}
		}
		if done, ok := matchingRollout(going, b); ok {
			revision = done
			return r.awaitServed(ctx, done)
		}
		proved, err := r.proveAll(ctx, going, m, Truncated(b.Truncated), b.By)
		if err != nil {
			return err
		}
		held := writePauses{Service: r.Service}
		revision, err = r.rebind(ctx, b.Digest, func(ctx context.Context) ([]byte, error) {
			var puts []meta.PutRollout
			for _, g := range going {
				p, err := r.begin(ctx, view, going, g, m, b)
				if err != nil {
					return nil, err
				}
				puts = append(puts, p)
			}
			forcedBy, err := proved.last(ctx, &held, view)
			if err != nil {
				return nil, err
			}
			for i := range puts {
				puts[i].Rollout.ForcedBy = cmp.Or(puts[i].Rollout.ForcedBy, forcedBy)
			}
			return by(view, b.By, r.puts(meta.ChangeCanary, puts)), nil
		})
		held.release(ctx, err)
		return err
	})
	return revision, err
}

// again calls try with an up-to-date view, and calls it again if it fails
// because of a concurrent change.
func (r *Rollouts) again(ctx context.Context, try func(*meta.View) error) error {
	for n := 1; ; n++ {
		if err := r.metadata.CatchUp(ctx); err != nil {
			return err
		}
		view := r.metadata.View()
		if view.ClusterVersion() < sharding.VersionRollouts {
			return refusedRollout("%s", sharding.VersionRollouts.NeededBy("a rollout needs", view.ClusterVersion()))
		}
		if err := try(view); !errors.Is(err, meta.ErrConflict) || n == replaceTries {
			return refusedError(err)
		}
	}
}

// begins returns the activations that change together when the module begins to
// serve a part of a type: those of all types that the module declares and that
// the same module serves now.
func begins(view *meta.View, entityType string, m *guest.Module) (going []meta.Activation, err error) {
	b, bound := view.Activation(entityType)
	digest := meta.Digest(m.Digest())
	switch {
	case !bound:
		return nil, request.ErrUnknownType
	case b.Digest == digest:
		return nil, refusedRollout("the module already serves all entities of %s", entityType)
	case b.Rollout.IsVerifying():
		return nil, verifies(b)
	case b.Rollout.IsActive() && b.Rollout.Digest != digest:
		return nil, refusedRollout("a rollout of module %.12s for %s is in progress: promote or abort it first", b.Rollout.Digest, entityType)
	case b.Rollout.IsActive() && b.Rollout.State != meta.RolloutRunning && b.Rollout.State != meta.RolloutPaused:
		return nil, refusedRollout("the entities of %s are returning to the old module", entityType)
	case b.Rollout.IsActive():
		return sharing(view, b), nil
	}
	for _, o := range view.Activations() {
		_, _, has := m.Manifest().Type(o.EntityType)
		if o.EntityType == entityType || has && o.Digest == b.Digest && !o.Rollout.IsActive() {
			going = append(going, o)
		}
	}
	return going, nil
}

// sharing returns the activations of the types that share b's rollout, by name.
func sharing(view *meta.View, b meta.Activation) (going []meta.Activation) {
	for _, name := range b.Rollout.Types {
		if o, _ := view.Activation(name); o.Rollout != nil && o.Rollout.Digest == b.Rollout.Digest {
			going = append(going, o)
		}
	}
	return going
}

// alike returns an error if the module declares a type differently than the
// serving module does, because the type's entities could not return to that
// module.
func (s *Service) alike(ctx context.Context, b meta.Activation, m *guest.Module) error {
	older, err := s.modules.Module(ctx, journal.Digest(b.Digest), "")
	if err != nil {
		return fmt.Errorf("compare with the active module: %w", err)
	}
	was, _, one := older.Manifest().Type(b.EntityType)
	next, _, other := m.Manifest().Type(b.EntityType)
	switch {
	case !other:
		return &request.InvalidModuleError{Reason: fmt.Sprintf("the module does not serve entity type %q; 'hostd module describe' lists its types", b.EntityType)}
	case one && (was.Kind != next.Kind || was.Encoding != next.Encoding || was.Singleton != next.Singleton || was.AlwaysOn != next.AlwaysOn):
		return &status.RefusedError{
			Reason: fmt.Sprintf("the module declares a different kind, encoding, alwaysOn or singleton for entity type %s than the active module, so it cannot serve a part of the type", b.EntityType),
			Name:   status.RefusedKind, About: map[string]string{"entityType": b.EntityType, "kind": string(was.Kind), "declaredKind": string(next.Kind)},
		}
	case next.Kind == manifest.Transient:
		return refusedRollout("entity type %s is transient: its entities would lose their state when a different module serves them", b.EntityType)
	}
	return nil
}

// matchingRollout returns the revision of a rollout that already matches the request: it
// is at one of the requested shares and has the remaining steps. So a repeated
// call changes nothing and restarts no pause.
func matchingRollout(going []meta.Activation, b RolloutBegin) (revision uint64, ok bool) {
	shares := append([]uint32{b.Share}, b.Steps...)
	for _, g := range going {
		was := g.Rollout
		if !was.IsActive() || b.Prefix != "" && b.Prefix != was.Prefix || was.Pause != int64(b.Pause) || was.Rules != b.Rules {
			return 0, false
		}
		if i := slices.Index(shares, was.Share); i < 0 || !slices.Equal(was.Steps, shares[i+1:]) {
			return 0, false
		}
		revision = max(revision, g.Revision)
	}
	return revision, true
}

// begin returns the first rollout state of one of the types that change
// together, or the state with a larger part if a rollout is active.
func (r *Rollouts) begin(ctx context.Context, view *meta.View, going []meta.Activation, g meta.Activation, m *guest.Module, b RolloutBegin) (p meta.PutRollout, err error) {
	next := meta.Rollout{Digest: meta.Digest(b.Digest), State: meta.RolloutRunning, Part: b.Part, First: b.Part, Types: typesOf(going)}
	next.Steps, next.Pause, next.Rules = b.Steps, int64(b.Pause), b.Rules
	if _, index, ok := m.Manifest().Type(g.EntityType); ok {
		next.TypeIndex = index
	}
	switch was := g.Rollout; {
	case was.IsActive():
		next = *was
		if b.Share < was.Share || b.Prefix != "" && b.Prefix != was.Prefix {
			return p, refusedRollout("the module already serves %s of %s: only 'hostd module rollout %s --abort' returns entities to the old module", servedPart(was.Part), g.EntityType, g.EntityType)
		}
		next.Share, next.Note, next.Steps, next.Pause, next.Rules = b.Share, "", b.Steps, int64(b.Pause), b.Rules
	case was != nil:
		next.Stay = was.Stay
	}
	if b.Check != nil {
		if next.ForcedBy, err = b.Check(ctx, g.EntityType); err != nil {
			return p, err
		}
	}
	next.By = b.By
	if view.ClusterVersion() >= sharding.VersionSnapshotProofs {
		next.Accept = next.Accept || b.Truncated.Accept
	}
	owner, err := ownership(ctx, view, g, g.EntityType, b.Digest, b.Approver)
	return meta.PutRollout{EntityType: g.EntityType, Over: g.Revision, Owner: owner, Rollout: &next}, err
}

// servedPart formats a part for people, in percent of the entities.
func servedPart(p meta.Part) string {
	percent := sharding.Percent(p.Share) + " of the entities"
	switch {
	case p.Prefix == "":
		return percent
	case p.Share == 0:
		return fmt.Sprintf("the entities with the prefix %q", p.Prefix)
	}
	return fmt.Sprintf("%s and those with the prefix %q", percent, p.Prefix)
}

// puts returns the command that stores rollouts now. If a rollout proceeds
// automatically, its next step is due after its pause.
func (r *Rollouts) puts(kind meta.ChangeKind, puts []meta.PutRollout) []byte {
	at := r.now().UnixNano()
	for _, p := range puts {
		if next := p.Rollout; next != nil {
			if next.DueAt = 0; next.State == meta.RolloutRunning && len(next.Steps) > 0 {
				next.DueAt = at + next.Pause
			}
		}
	}
	return meta.PutRollouts(kind, at, puts...)
}

func typesOf(going []meta.Activation) (out []string) {
	for _, g := range going {
		out = append(out, g.EntityType)
	}
	slices.Sort(out)
	return out
}

// State returns the state of a type's rollout. It fails with
// request.ErrUnknownType.
func (r *Rollouts) State(ctx context.Context, entityType string) (out RolloutState, err error) {
	if err := r.metadata.CatchUp(ctx); err != nil {
		return out, err
	}
	if out, err = r.state(entityType); err != nil {
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	out.Shadow = r.shadow(ctx, entityType)
	if out.Rollout == nil {
		return out, nil
	}
	view := r.metadata.View()
	b, _ := view.Activation(entityType)
	if !b.Rollout.IsActive() || b.Rollout.IsVerifying() {
		return out, nil
	}
	by, silent, _ := r.counts(ctx, []meta.Activation{b})
	if v := by[entityType]; v != nil {
		out.Counts = &RolloutCounts{Older: v.older, Newer: v.newer, MissingNodes: silent}
	}
	return out, nil
}

func (r *Rollouts) state(entityType string) (RolloutState, error) {
	b, bound := r.metadata.View().Activation(entityType)
	if !bound {
		return RolloutState{}, request.ErrUnknownType
	}
	out := RolloutState{EntityType: entityType, Older: journal.Digest(b.Digest), Revision: b.Revision, Rollout: b.Rollout}
	if log := b.ChangeLog(); len(log) > 0 && log[len(log)-1].Kind == meta.ChangeAbort {
		out.Aborted = &log[len(log)-1]
	}
	return out, nil
}

// Change carries out the order and returns the resulting state. For an abort,
// it waits until the entities have returned to the older module.
func (r *Rollouts) Change(ctx context.Context, o RolloutOrder) (RolloutState, error) {
	err := r.again(ctx, func(view *meta.View) (err error) {
		b, bound := view.Activation(o.EntityType)
		if !bound {
			return request.ErrUnknownType
		}
		if b.Rollout == nil {
			return over(b, o.Action)
		}
		var puts []meta.PutRollout
		for _, g := range sharing(view, b) {
			owner, err := ownership(ctx, view, g, g.EntityType, journal.Digest(b.Rollout.Digest), o.Approver)
			if err != nil {
				return err
			}
			p, change, err := applyOrder(g, o)
			if err != nil {
				return err
			}
			if p.Owner = owner; change {
				puts = append(puts, p)
			}
		}
		if len(puts) == 0 {
			return nil // the rollout is already in the requested state
		}
		kind, held := meta.ChangeKind(""), writePauses{Service: r.Service}
		if !b.Rollout.IsServing() { // abort, which needs no module
			if _, _, err := r.repeat(ctx, by(view, o.By, r.puts(meta.ChangeAbort, puts))); err != nil {
				return err
			}
			return r.metadata.CatchUp(ctx)
		}
		var proved proofs
		if o.Action == modulev1.ChangeRolloutRequest_ACTION_PROMOTE {
			kind = meta.ChangePromote
			if proved, err = r.proveRest(ctx, sharing(view, b), o.Force, o.By); err != nil {
				return err
			}
		}
		_, err = r.rebind(ctx, journal.Digest(b.Rollout.Digest), func(ctx context.Context) ([]byte, error) {
			forcedBy, err := proved.last(ctx, &held, view)
			for i := range puts {
				puts[i].ForcedBy = cmp.Or(puts[i].ForcedBy, forcedBy)
			}
			return by(view, o.By, r.puts(kind, puts)), err
		})
		held.release(ctx, err)
		return err
	})
	if err == nil && o.Action == modulev1.ChangeRolloutRequest_ACTION_ABORT {
		return r.back(ctx, o.EntityType)
	}
	if err != nil {
		return RolloutState{}, err
	}
	return r.state(o.EntityType)
}

// proveRest compares the entities that the older module still serves, before
// the newer module serves more of them.
func (r *Rollouts) proveRest(ctx context.Context, going []meta.Activation, force bool, by string) (proofs, error) {
	m, err := r.modules.ToRun(ctx, journal.Digest(going[0].Rollout.Digest), "")
	if err != nil {
		return nil, err
	}
	return r.proveAll(ctx, going, m, Truncated{Prove: true, Accept: going[0].Rollout.Accept, Force: force}, by)
}

// over handles an order for a type that has no rollout. It returns nil if the
// last rollout ended as the order requests, and an error otherwise.
func over(b meta.Activation, action modulev1.ChangeRolloutRequest_Action) error {
	log := b.ChangeLog()
	last := log[len(log)-1].Kind
	switch {
	case action == modulev1.ChangeRolloutRequest_ACTION_PROMOTE && last == meta.ChangePromote:
	case action == modulev1.ChangeRolloutRequest_ACTION_ABORT && last == meta.ChangeAbort:
	default:
		return refusedRollout("there is no rollout of %s", b.EntityType)
	}
	return nil
}

// applyOrder returns the rollout of one type after an order. change is false if
// the order changes nothing.
func applyOrder(g meta.Activation, o RolloutOrder) (p meta.PutRollout, change bool, err error) {
	next := *g.Rollout
	next.By, next.Note = o.By, ""
	p = meta.PutRollout{EntityType: g.EntityType, Over: g.Revision, Rollout: &next}
	was := g.Rollout.State
	if !g.Rollout.IsServing() {
		return orderUnserved(g, p, o)
	}
	goesBack := was == meta.RolloutAborting || was == meta.RolloutHeld
	switch o.Action {
	case modulev1.ChangeRolloutRequest_ACTION_PAUSE:
		next.State = meta.RolloutPaused
	case modulev1.ChangeRolloutRequest_ACTION_RESUME:
		next.State = meta.RolloutRunning
	case modulev1.ChangeRolloutRequest_ACTION_PROMOTE:
		p.Rollout, p.Promote = nil, true
		return p, true, refuseIf(goesBack, g)
	case modulev1.ChangeRolloutRequest_ACTION_ABORT:
		switch {
		case was == meta.RolloutAborted && !o.Force:
			return p, false, refusedRollout("%d entities of %s stay with the new module, because the old module fails on them; --force returns them anyway", len(next.Stay), g.EntityType)
		case was == meta.RolloutAborted:
			next.State = meta.RolloutHeld
		case !goesBack:
			next.State = meta.RolloutAborting
		}
		if o.Force {
			next.BackForcedBy = o.By
		}
		return p, next.State != was || next.BackForcedBy != g.Rollout.BackForcedBy, nil
	default:
		return p, false, refusedRollout("unknown rollout action")
	}
	if was == meta.RolloutAborted {
		return p, false, refusedRollout("the rollout of %s has ended except for %d pinned entities: promote it, or abort it with --force", g.EntityType, len(next.Stay))
	}
	return p, next.State != was, refuseIf(goesBack, g)
}

func refuseIf(goesBack bool, g meta.Activation) error {
	if goesBack {
		return refusedRollout("the entities of %s are returning to the old module", g.EntityType)
	}
	return nil
}

// back waits until the entities of a type have returned to the older module, or
// until the abort has ended with entities that must stay.
func (r *Rollouts) back(ctx context.Context, entityType string) (RolloutState, error) {
	for {
		changed := r.metadata.Changed()
		now, err := r.state(entityType)
		if err != nil {
			return now, err
		}
		switch {
		case now.Rollout == nil || now.State == meta.RolloutAborted:
			return now, r.awaitServed(ctx, now.Revision)
		case now.State == meta.RolloutPaused || now.State == meta.RolloutRunning:
			return now, refusedRollout("no entity returned to the old module: %s", now.Note)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return now, errRolloutGoesOn
		}
	}
}

// refusedRollout returns the error for a rollout that is not possible now.
func refusedRollout(format string, args ...any) error {
	return &status.RefusedError{Reason: fmt.Sprintf(format, args...)}
}

// errRolloutGoesOn: the call's deadline passed before the entities had returned
// to the older module.
var errRolloutGoesOn = status.New(connect.CodeDeadlineExceeded, "the entities are still returning to the old module; 'hostd module rollout TYPE' shows the progress")
