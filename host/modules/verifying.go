package modules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Verifying activations.
//
// An activation that needs a proof, see proofs.go, is stored in the metadata as
// a rollout in the state verifying, and the call that requested it returns. The
// node that leads the metadata makes the proof in three stages:
//
//  1. It lets the leaders of the shards compare all affected entities at a
//     limited rate, until none is left, without a time limit. They remember
//     which entities they have compared, so a new metadata leader repeats the
//     stage at the cost of a scan.
//  2. It repeats this comparison for entities written meanwhile, until a pass
//     is short.
//  3. It pauses the type's writes, compares once more, records the proof, and
//     activates the module, all within pauseTime.
//
// The metadata rejects an activation without the third stage. If the
// module is not compatible, the rollout becomes refused, with the reason in its
// note.

const (
	// pacedSlice bounds one paced comparison of all shards. The next comparison
	// continues it.
	pacedSlice = 10 * time.Minute
	// shortLook is the duration below which a pass counts as short, so that the
	// comparison under a write pause follows. After pacedLooks passes it
	// follows in any case.
	shortLook  = 5 * time.Second
	pacedLooks = 8
	// pausedTries is how many comparisons under a write pause may fail before
	// the module is refused. pausedRetry is the minimum time between these
	// comparisons, because commands wait during each.
	pausedTries = 5
	pausedRetry = 30 * time.Second
)

// verify stores an activation for later verification if it needs a proof and
// the caller lets the cluster make it later. kept is false if the module may be
// activated now.
func (s *Service) verify(ctx context.Context, view *meta.View, b meta.Activation, m *guest.Module, a Activation) (now Activated, kept bool, err error) {
	if b.Rollout.IsVerifying() && b.Digest != meta.Digest(a.Digest) {
		if !a.Later || !sameActivation(b.Rollout, a) {
			return now, false, verifies(b)
		}
		return Activated{Revision: b.Revision, Verifying: true}, true, nil
	}
	// If entities stay with the module of an earlier rollout, the metadata has
	// no place for another rollout.
	if !a.Prove || !a.Later || view.ClusterVersion() < sharding.VersionVerifyingRollouts || b.Rollout.IsServing() {
		return now, false, nil
	}
	if comparable, err := s.comparable(ctx, b, m); err != nil || !comparable {
		return now, false, err
	}
	found, err := s.shards.Touched(ctx, CompatibilityQuery{EntityType: a.EntityType, Digest: a.Digest, Budget: lookTime, TruncatedOnly: true, PresenceOnly: true})
	if err != nil {
		return now, false, fmt.Errorf("look for entities of %s with truncated events: %w", a.EntityType, err)
	}
	if found.GetEntities() == 0 && found.GetUncheckedShards() == 0 {
		return now, false, nil
	}
	_, index, _ := m.Manifest().Type(a.EntityType)
	next := meta.Rollout{
		Digest: meta.Digest(a.Digest), TypeIndex: index, State: meta.RolloutVerifying, Types: []string{a.EntityType},
		Accept: a.Accept, Force: a.Force, Limits: (*meta.Limits)(a.Limits), ForcedBy: a.ForcedBy, By: a.By,
	}
	owner, err := ownership(ctx, view, b, a.EntityType, a.Digest, a.Approver)
	if err != nil {
		return now, false, err
	}
	put := meta.PutRollout{EntityType: a.EntityType, Over: b.Revision, Owner: owner, Rollout: &next}
	now.Revision, err = s.rebind(ctx, a.Digest, func(context.Context) ([]byte, error) {
		return by(view, a.By, meta.PutRollouts("", time.Now().UnixNano(), put)), nil
	})
	now.Verifying = true
	return now, err == nil, err
}

// sameActivation reports whether a call requests the activation that is being
// verified.
func sameActivation(r *meta.Rollout, a Activation) bool {
	same := r.Digest == meta.Digest(a.Digest) && r.Accept == a.Accept && r.Force == a.Force
	if r.Limits == nil || a.Limits == nil {
		return same && r.Limits == nil && a.Limits == nil
	}
	return same && *r.Limits == meta.Limits(*a.Limits)
}

// verifies returns the error for other changes of a type while a module is
// being verified.
func verifies(b meta.Activation) error {
	return refusedRollout("module %.12s is being verified for %s and will serve it afterwards: wait, or abort with 'hostd module rollout %s --abort'", b.Rollout.Digest, b.EntityType, b.EntityType)
}

// orderUnserved returns the rollout of one type after an order, if the module
// of the rollout serves nothing.
func orderUnserved(g meta.Activation, p meta.PutRollout, o RolloutOrder) (meta.PutRollout, bool, error) {
	switch {
	case o.Action == modulev1.ChangeRolloutRequest_ACTION_ABORT:
		p.Rollout = nil
		return p, true, nil
	case g.Rollout.IsVerifying():
		return p, false, verifies(g)
	}
	return p, false, refusedRollout("the verification of module %.12s for %s failed: activate it again, or activate a different module", g.Rollout.Digest, g.EntityType)
}

// AwaitServed implements rollout.Rollouts.
func (r *Rollouts) AwaitServed(ctx context.Context, revision uint64) error {
	return r.awaitServed(ctx, revision)
}

// preparer lets all reachable nodes compile a module.
type preparer interface {
	PrepareToRun(ctx context.Context, digest journal.Digest) error
}

// verifications carry out the stored activations, one at a time. They belong
// to one goroutine, which is not the goroutine of Rollouts, because a
// comparison is slow and write-paused entities wait for Rollouts.
type verifications struct {
	*Service
	rollouts *Rollouts
	nodes    preparer
	now      func() time.Time
	late     map[string]retry // retries by type
	tries    map[string]int   // failed comparisons under a write pause, by type
}

// run verifies while this node leads the metadata shard, until ctx ends.
func (v *verifications) run(ctx context.Context) {
	for {
		changed := v.metadata.Changed()
		if _, leads := v.metadata.Leads(); leads {
			v.pass(ctx)
		}
		select {
		case <-changed:
		case <-time.After(idlePause):
		case <-ctx.Done():
			return
		}
	}
}

// pass advances the oldest activation that has not just failed. It handles
// one at a time because nodes remember one comparison per shard, so two
// activations would discard each other's progress.
func (v *verifications) pass(ctx context.Context) {
	view := v.metadata.View()
	b, found := v.next(view)
	if found {
		err := v.advance(ctx, b)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil || !v.current(b):
			delete(v.late, b.EntityType)
			delete(v.tries, b.EntityType)
		default:
			again := retry{pause: min(maxRetry, max(minRetry, 2*v.late[b.EntityType].pause))}
			if v.tries[b.EntityType] > 0 {
				again.pause = max(again.pause, pausedRetry)
			}
			again.at = v.now().Add(again.pause)
			v.late[b.EntityType] = again
			v.types.logger.Warn("the verification of a module continues", "entity_type", b.EntityType, "digest", b.Rollout.Digest.String(), "retry_in", again.pause, "error", err)
		}
	}
	over := func(name string) bool {
		b, _ := view.Activation(name)
		return !b.Rollout.IsVerifying()
	}
	maps.DeleteFunc(v.late, func(name string, _ retry) bool { return over(name) })
	maps.DeleteFunc(v.tries, func(name string, _ int) bool { return over(name) })
}

// next returns the activation whose module is to be verified now.
func (v *verifications) next(view *meta.View) (first meta.Activation, found bool) {
	for _, b := range view.Activations() {
		if b.Rollout.IsVerifying() && !v.now().Before(v.late[b.EntityType].at) && (!found || b.Rollout.Began < first.Rollout.Began) {
			first, found = b, true
		}
	}
	return first, found
}

// current reports whether this node must still verify the module of b.
func (v *verifications) current(b meta.Activation) bool {
	_, leads := v.metadata.Leads()
	now, _ := v.metadata.View().Activation(b.EntityType)
	return leads && now.Rollout.IsVerifying() && now.Rollout.Began == b.Rollout.Began
}

// while returns a context that is cancelled once this node need not verify
// the module of b any more (current). The caller must call done.
func (v *verifications) while(ctx context.Context, b meta.Activation) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			changed := v.metadata.Changed()
			if !v.current(b) {
				cancel()
			}
			select {
			case <-changed:
			case <-time.After(idlePause):
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		cancel()
		<-ended
	}
}

// advance verifies the module of b, and activates or refuses it.
func (v *verifications) advance(ctx context.Context, b meta.Activation) error {
	looking, done := v.while(ctx, b)
	p, err := v.compare(looking, b)
	done()
	refused := refusedFault(err)
	if err != nil && refused == nil {
		return err
	}
	deciding, cancel := context.WithTimeout(ctx, advanceTime)
	defer cancel()
	return v.decide(deciding, p, refused)
}

// compare makes the comparisons while commands run.
func (v *verifications) compare(ctx context.Context, b meta.Activation) (*proof, error) {
	p := &proof{Service: v.Service, b: b, digest: journal.Digest(b.Rollout.Digest), accept: b.Rollout.Accept, by: b.Rollout.By, needed: true, always: true}
	if err := v.prepare(ctx, p.digest); err != nil {
		return p, err
	}
	one, ok := v.metadata.View().VerificationResult(b.EntityType, b.Rollout.Digest)
	p.snapshots = ok && one.Snapshots && one.Revision >= lastChange(b)
	for range pacedLooks {
		began := v.now()
		if err := p.comparePaced(ctx); err != nil {
			return p, err
		}
		if v.now().Sub(began) < shortLook {
			break
		}
	}
	return p, v.prepare(ctx, p.digest) // nodes that have joined since need the module too
}

func (v *verifications) prepare(ctx context.Context, digest journal.Digest) error {
	ctx, cancel := context.WithTimeout(ctx, advanceTime)
	defer cancel()
	return v.nodes.PrepareToRun(ctx, digest)
}

// lastChange returns the revision of the last entry of b's change log. The
// serving module has not changed since then.
func lastChange(b meta.Activation) uint64 {
	log := b.ChangeLog()
	return log[len(log)-1].Revision
}

// comparePaced compares all affected entities at the pace of verifications. It returns
// an error if the module is not compatible or not all entities could be
// compared.
func (p *proof) comparePaced(ctx context.Context) error {
	for {
		slice, cancel := context.WithTimeout(ctx, pacedSlice)
		found, err := p.shards.Touched(slice, CompatibilityQuery{
			EntityType: p.b.EntityType, Digest: p.digest, Budget: lookTime, TruncatedOnly: true, IncludeSnapshots: p.snapshots, Paced: true, AcceptDifferences: p.accept,
		})
		cancel()
		if err != nil && errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			return fmt.Errorf("compare entities of %s with truncated events: %w", p.b.EntityType, err)
		}
		switch refused := p.refusal(found); {
		case refused == nil:
			return nil
		case p.snapshots: // also compare entities with all their events, starting from these snapshots
			p.snapshots = false
		default:
			return refused
		}
	}
}

// refusedFault returns the rejection of an incompatible module, or nil for any
// other error.
func refusedFault(err error) *status.RefusedError {
	if refused := (*status.RefusedError)(nil); errors.As(err, &refused) && refused.Name == status.RefusedFault {
		return refused
	}
	return nil
}

// decide makes the comparison under a write pause, and activates or refuses the
// module.
func (v *verifications) decide(ctx context.Context, p *proof, refused *status.RefusedError) (err error) {
	if err := v.metadata.CatchUp(ctx); err != nil {
		return err
	}
	if !v.current(p.b) {
		return nil
	}
	view := v.metadata.View()
	p.b, _ = view.Activation(p.b.EntityType) // the limits of the type may have changed
	held := writePauses{Service: v.Service}
	defer func() { held.release(ctx, err) }()
	if refused == nil {
		if refused, err = v.lastLook(ctx, p, &held, view); err != nil {
			return err
		}
	}
	r, name := p.b.Rollout, p.b.EntityType
	put := meta.PutRollout{EntityType: name, Over: p.b.Revision, Promote: true}
	kind := meta.ChangeActivate
	switch {
	case refused != nil && r.Force:
		put.ForcedBy = cmp.Or(r.By, "force")
		v.types.logger.Warn("activating a module although its verification failed (--force)", "entity_type", name, "digest", r.Digest.String(), "by", put.ForcedBy, "reason", refused.Reason)
	case refused != nil:
		put, kind = following(p.b, meta.RolloutRefused, noteOf(refused)), ""
		v.types.logger.Warn("rejected a module", "entity_type", name, "digest", r.Digest.String(), "reason", refused.Reason)
	}
	return v.rollouts.put(ctx, view, []meta.Activation{p.b}, kind, func(meta.Activation) meta.PutRollout { return put })
}

// lastLook makes the comparison under a write pause. If it fails pausedTries
// times, the module is refused, because commands wait during each attempt.
func (v *verifications) lastLook(ctx context.Context, p *proof, held *writePauses, view *meta.View) (*status.RefusedError, error) {
	_, err := p.last(ctx, held, view)
	refused := refusedFault(err)
	if err == nil || refused != nil {
		return refused, nil
	}
	if len(held.paused) == 0 {
		return nil, err // no writes were paused
	}
	v.tries[p.b.EntityType]++
	if v.tries[p.b.EntityType] < pausedTries {
		return nil, err
	}
	return &status.RefusedError{
		Reason: fmt.Sprintf("%s: the events written during the verification could not be compared within %v while writes were paused, in %d attempts: %v", p.b.EntityType, pauseTime, pausedTries, err),
		Name:   status.RefusedUnverified,
	}, nil
}

// noteOf returns a rejection as the note of a rollout.
func noteOf(refused *status.RefusedError) string {
	note := strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f {
			return ' '
		}
		return c
	}, refused.Reason)
	if len(note) > meta.MaxRolloutNote {
		note = strings.ToValidUTF8(note[:meta.MaxRolloutNote-3], "") + "..."
	}
	return note
}
