package modules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

const (
	// idlePause is how often a node checks whether it leads the metadata shard.
	idlePause = time.Second
	// advanceTime bounds one attempt to advance a rollout, and lookTime the check
	// of one shard.
	advanceTime = 40 * time.Second
	lookTime    = 10 * time.Second
	// watchPause is the interval of checks of a rollout's rules, and countTime
	// bounds the collection of counts.
	watchPause = time.Second
	countTime  = 5 * time.Second
	// Pauses between failed attempts.
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

// retry says when a rollout that could not be advanced is tried again.
type retry struct {
	at    time.Time
	pause time.Duration
}

// run advances rollouts while this node leads the metadata shard, until ctx
// ends. All its state is in the metadata, so a new leader continues where the
// previous one stopped.
func (r *Rollouts) run(ctx context.Context) {
	for {
		changed := r.metadata.Changed()
		if _, leads := r.metadata.Leads(); leads {
			r.pass(ctx)
		}
		select {
		case <-changed:
		case <-time.After(idlePause):
		case <-ctx.Done():
			return
		}
	}
}

// pass checks each rollout once.
func (r *Rollouts) pass(ctx context.Context) {
	view := r.metadata.View()
	r.releaseOverdue(ctx, view)
	for _, b := range view.Activations() {
		if !r.due(view, b) {
			continue
		}
		trying, cancel := context.WithTimeout(ctx, advanceTime)
		err := r.advance(trying, view, b)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			delete(r.late, b.EntityType)
		default:
			again := retry{pause: min(maxRetry, max(minRetry, 2*r.late[b.EntityType].pause))}
			again.at = r.now().Add(again.pause)
			r.late[b.EntityType] = again
			r.types.logger.Warn("cannot continue a rollout", "entity_type", b.EntityType, "state", string(b.Rollout.State), "retry_in", again.pause, "error", err)
		}
	}
	maps.DeleteFunc(r.watched, func(name string, _ time.Time) bool {
		b, _ := view.Activation(name)
		return !b.Rollout.IsActive()
	})
	maps.DeleteFunc(r.late, func(name string, _ retry) bool {
		b, _ := view.Activation(name)
		return !b.Rollout.IsActive()
	})
}

// due reports whether a type's rollout needs work now. If several types share a
// rollout, it returns true only for the first of them.
func (r *Rollouts) due(view *meta.View, b meta.Activation) bool {
	w := b.Rollout
	if w == nil || sharing(view, b)[0].EntityType != b.EntityType || r.now().Before(r.late[b.EntityType].at) {
		return false
	}
	watched := w.State == meta.RolloutRunning && w.Rules != "" && r.now().Sub(r.watched[b.EntityType]) >= watchPause
	return watched || r.stepDue(w) || w.State == meta.RolloutAborting || w.State == meta.RolloutHeld
}

// stepDue reports whether the next step of a rollout must be taken.
func (r *Rollouts) stepDue(w *meta.Rollout) bool {
	return w.State == meta.RolloutRunning && len(w.Steps) > 0 && w.DueAt > 0 && w.DueAt <= r.now().UnixNano()
}

// advance advances a rollout by one step.
func (r *Rollouts) advance(ctx context.Context, view *meta.View, b meta.Activation) error {
	going := sharing(view, b)
	switch b.Rollout.State {
	case meta.RolloutHeld:
		return r.takeBack(ctx, view, going)
	case meta.RolloutRunning:
		due := r.stepDue(b.Rollout)
		if due { // slow work comes before the check of the rules
			if err := r.modules.prepareEverywhere(ctx, journal.Digest(b.Rollout.Digest)); err != nil {
				return err
			}
		}
		if aborts, err := r.watch(ctx, view, going); err != nil || aborts || !due {
			return err
		}
		return r.step(ctx, view, going)
	}
	// Check while writes continue, so that an attempt that must fail does not
	// delay commands.
	if b.Rollout.BackForcedBy == "" {
		if _, err := r.failing(ctx, going, 0); err != nil {
			return err
		}
	}
	return r.put(ctx, view, going, "", func(g meta.Activation) meta.PutRollout {
		return following(g, meta.RolloutHeld, g.Rollout.Note)
	})
}

// watch aborts a rollout that types share if one of its rules is broken. It
// runs before each step.
func (r *Rollouts) watch(ctx context.Context, view *meta.View, going []meta.Activation) (aborts bool, err error) {
	of := going[0]
	if of.Rollout.Rules == "" {
		return false, nil
	}
	r.watched[of.EntityType] = r.now()
	counting, cancel := context.WithTimeout(ctx, countTime)
	defer cancel()
	by, _, err := r.counts(counting, going)
	if by == nil {
		return false, err
	}
	// A broken rule stays broken, even if counts of other nodes are missing.
	rule, why, fault := broken(going, by)
	if fault != nil || why == "" {
		return false, errors.Join(err, fault)
	}
	r.types.logger.Warn("aborting a rollout because a rule is violated", "entity_type", of.EntityType, "digest", of.Rollout.Digest.String(), "rule", rule.String(), "why", why)
	return true, r.put(ctx, view, going, "", func(g meta.Activation) meta.PutRollout {
		p := following(g, meta.RolloutAborting, "aborted by the cluster because a rule is violated: "+why)
		p.Rollout.By = "rule:" + rule.String()
		return p
	})
}

// step makes a due step of a rollout. Every node must already have the module.
func (r *Rollouts) step(ctx context.Context, view *meta.View, going []meta.Activation) (err error) {
	share, held := going[0].Rollout.Steps[0], writePauses{Service: r.Service}
	proved, err := r.proveRest(ctx, going, false, going[0].Rollout.By)
	if err == nil {
		_, err = proved.last(ctx, &held, view)
	}
	defer func() { held.release(ctx, err) }()
	if refused := (*status.RefusedError)(nil); errors.As(err, &refused) && refused.Name == status.RefusedFault {
		return r.refuse(ctx, going[0].EntityType, &held, refused)
	}
	if err != nil {
		return err
	}
	if share == sharding.Buckets {
		return r.put(ctx, view, going, meta.ChangePromote, func(g meta.Activation) meta.PutRollout {
			return meta.PutRollout{EntityType: g.EntityType, Over: g.Revision, Promote: true}
		})
	}
	return r.put(ctx, view, going, meta.ChangeCanary, func(g meta.Activation) meta.PutRollout {
		p := following(g, meta.RolloutRunning, "")
		p.Rollout.Share, p.Rollout.Steps = share, p.Rollout.Steps[1:]
		return p
	})
}

// refuse pauses a rollout whose module is not compatible with the entities of
// the next step.
func (r *Rollouts) refuse(ctx context.Context, entityType string, held *writePauses, refused *status.RefusedError) error {
	held.release(ctx, refused)
	held.paused = nil
	if err := r.metadata.CatchUp(ctx); err != nil {
		return err
	}
	view := r.metadata.View()
	b, _ := view.Activation(entityType)
	if !b.Rollout.IsActive() || b.Rollout.State != meta.RolloutRunning {
		return nil
	}
	note := noteOf(refused)
	return r.put(ctx, view, sharing(view, b), "", func(g meta.Activation) meta.PutRollout { return following(g, meta.RolloutPaused, note) })
}

// takeBack gives write-paused entities back to the older module, except those
// on which the older module fails. If not all entities can be checked, it ends
// the write pause and tries again later.
func (r *Rollouts) takeBack(ctx context.Context, view *meta.View, going []meta.Activation) error {
	forced := going[0].Rollout.BackForcedBy
	stays := map[string][]string{}
	if forced == "" {
		var fence uint64
		for _, g := range going {
			fence = max(fence, g.Revision)
		}
		found, err := r.failing(ctx, going, fence)
		if err != nil {
			note := "not all entities could be checked yet; retrying"
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
			defer cancel()
			if put := r.put(ctx, view, going, "", func(g meta.Activation) meta.PutRollout { return following(g, meta.RolloutAborting, note) }); put != nil {
				return put
			}
			return err
		}
		for _, g := range going {
			all := slices.Clone(g.Rollout.Stay)
			for _, f := range found[g.EntityType].GetFaults() {
				if !slices.Contains(all, f.GetEntityId()) {
					all = append(all, f.GetEntityId())
				}
			}
			slices.Sort(all)
			if failing := found[g.EntityType].GetFaultyEntities(); failing > uint64(len(found[g.EntityType].GetFaults())) || len(all) > meta.MaxRolloutStay {
				note := fmt.Sprintf("the old module fails on %d entities of %s, but at most %d can stay with the new module: promote the new module, or abort with --force", failing, g.EntityType, meta.MaxRolloutStay)
				return r.put(ctx, view, going, "", func(g meta.Activation) meta.PutRollout { return following(g, meta.RolloutPaused, note) })
			}
			stays[g.EntityType] = all
		}
	}
	var left []string
	for _, g := range going {
		if len(stays[g.EntityType]) > 0 {
			left = append(left, g.EntityType)
		}
	}
	return r.put(ctx, view, going, meta.ChangeAbort, func(g meta.Activation) meta.PutRollout {
		stay := stays[g.EntityType]
		if len(stay) == 0 {
			return meta.PutRollout{EntityType: g.EntityType, Over: g.Revision, ForcedBy: forced}
		}
		p := following(g, meta.RolloutAborted, fmt.Sprintf("the old module fails on %d entities, which stay with the new module", len(stay)))
		p.Rollout.Stay, p.Rollout.Part, p.Rollout.Types = stay, meta.Part{}, left
		p.Rollout.Steps, p.Rollout.Pause, p.Rollout.Rules = nil, 0, ""
		return p
	})
}

// failing replays, with the older modules, the entities that the newer module
// has written, once the logs of all shards have reached fence.
func (r *Rollouts) failing(ctx context.Context, going []meta.Activation, fence uint64) (map[string]*modulev1.CheckCompatibilityResponse, error) {
	if fence > 0 {
		if err := r.modules.servedEverywhere(ctx, fence); err != nil {
			return nil, err
		}
	}
	out := map[string]*modulev1.CheckCompatibilityResponse{}
	proves := r.metadata.View().ClusterVersion() >= sharding.VersionSnapshotProofs
	for _, g := range going {
		q := CompatibilityQuery{
			EntityType: g.EntityType, Digest: journal.Digest(g.Digest), Budget: lookTime, ExcludeWrittenBy: olderThan(g), Initial: g.Rollout.First, Current: g.Rollout.Part, MinRevision: fence, TruncatedOnly: proves,
		}
		found, err := r.shards.Touched(ctx, q)
		if err == nil && proves {
			q.ExcludeWrittenBy = nil
			err = r.addTruncated(ctx, g, q, found)
		}
		if err != nil {
			return nil, err
		}
		if n := found.GetUncheckedShards(); n > 0 {
			return nil, fmt.Errorf("%s: not all entities that the new module wrote were checked in %d shards", g.EntityType, n)
		}
		out[g.EntityType] = found
	}
	return out, nil
}

// addTruncated adds the entities whose first events are gone and for which
// the older module computes no state, or a different state than the newer
// module. If writes are paused, it also records whose snapshots the older
// module reads for the other entities.
func (r *Rollouts) addTruncated(ctx context.Context, g meta.Activation, q CompatibilityQuery, found *modulev1.CheckCompatibilityResponse) error {
	cut, err := r.shards.Touched(ctx, q)
	if err != nil {
		return err
	}
	found.UncheckedShards += cut.GetUncheckedShards()
	found.FaultyEntities += cut.GetFaultyEntities() + cut.GetDifferingEntities()
	found.Faults = append(append(found.Faults, cut.GetFaults()...), cut.GetDifferences()...)
	if q.MinRevision == 0 || cut.GetUncheckedShards() > 0 || len(cut.GetSnapshotDigests()) == 0 {
		return nil
	}
	if n := len(cut.GetSnapshotDigests()); n > meta.MaxTruncatedModules {
		return fmt.Errorf("there are snapshots of %d modules for entities of %s with truncated events, at most %d are allowed", n, g.EntityType, meta.MaxTruncatedModules)
	}
	p := proof{Service: r.Service, b: g, digest: journal.Digest(g.Digest), by: g.Rollout.By}
	return p.record(ctx, r.metadata.View(), cut)
}

// olderThan returns the modules whose events the serving module knows: itself,
// and modules that served before it, except the newer module of the rollout.
func olderThan(b meta.Activation) []journal.Digest {
	out := []journal.Digest{journal.Digest(b.Digest)}
	for _, h := range b.History {
		if d := journal.Digest(h.Digest); h.Digest != b.Rollout.Digest && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// following returns the command part that puts a rollout into its next state.
func following(g meta.Activation, state meta.RolloutState, note string) meta.PutRollout {
	next := *g.Rollout
	next.State, next.Note = state, note
	return meta.PutRollout{EntityType: g.EntityType, Over: g.Revision, Rollout: &next}
}

// put stores the next states of the types that share a rollout, in the name of
// the principal that requested it. It fails if there was a concurrent change;
// the runner then checks again.
func (r *Rollouts) put(ctx context.Context, view *meta.View, going []meta.Activation, kind meta.ChangeKind, next func(meta.Activation) meta.PutRollout) error {
	puts := make([]meta.PutRollout, len(going))
	for i, g := range going {
		puts[i] = next(g)
	}
	if _, err := r.metadata.Do(ctx, by(view, going[0].Rollout.By, r.puts(kind, puts))); err != nil {
		return err
	}
	if err := r.metadata.CatchUp(ctx); err != nil {
		return err
	}
	return r.types.Refresh(ctx)
}
