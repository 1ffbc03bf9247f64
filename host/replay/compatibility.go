package replay

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// CheckCompatibility compares a module with the stored entities of a shard that
// this node leads: it counts stored event types and states that the module does
// not list, and replays a sample of the entities, or the entities that the query
// selects. It takes at most slightly longer than twice q.Budget, unless the query
// is paced.
func (r *Replays) CheckCompatibility(ctx context.Context, q modules.CompatibilityQuery) (out modules.Compatibility, err error) {
	if q.PresenceOnly && !q.TruncatedOnly && q.MinRevision > 0 {
		if err := r.fence(ctx, q.Shard, q.MinRevision); err != nil {
			return out, err
		}
	}
	if out.Present, err = r.present(ctx, q); err != nil || q.PresenceOnly && !q.TruncatedOnly {
		return out, err
	}
	t := r.opts.Types.ServedType(q.EntityType)
	if t == nil {
		return out, request.ErrModuleNotLoaded
	}
	m, err := r.opts.Modules.ToRun(ctx, q.Digest, "")
	if err != nil {
		return out, err
	}
	about, _, ok := m.Manifest().Type(q.EntityType)
	if !ok {
		return out, &request.InvalidModuleError{Reason: "the module does not serve the entity type"}
	}
	out.Complete = true
	if t.Transient || about.Kind == manifest.Transient {
		return out, nil // the shard stores no events of the type
	}
	if q.TruncatedOnly && q.Paced {
		return r.truncated(ctx, q) // the budget of the query starts when the check begins, not while the check waits for its turn
	}
	if len(q.ExcludeWrittenBy) > 0 || q.TruncatedOnly {
		folding, cancel := context.WithTimeout(ctx, q.Budget)
		defer cancel()
		if q.MinRevision > 0 {
			if err := r.fence(folding, q.Shard, q.MinRevision); err != nil {
				return out, err
			}
		}
		if len(q.ExcludeWrittenBy) == 0 {
			return r.truncated(folding, q)
		}
		return r.touched(folding, q)
	}
	if listed := listedEvents(about); listed != nil && !t.Durable {
		counting, cancel := context.WithTimeout(ctx, q.Budget)
		defer cancel()
		out.Complete, err = r.catalogues.of(counting, r.opts.Machine, catalogueKey{q.Shard, q.EntityType}, func(counts map[string]uint64) {
			out.Missing = missingOf(counts, listed)
		})
		if err != nil {
			return out, err
		}
	}
	if about.Kind == manifest.DurableState && t.Durable {
		looking, cancel := context.WithTimeout(ctx, q.Budget)
		defer cancel()
		states := about.States()
		if out.Missing, out.Complete, err = r.unreadStates(looking, q, &states); err != nil {
			return out, err
		}
	}
	if q.Sample == 0 {
		return out, nil
	}
	sampling, cancel := context.WithTimeout(ctx, q.Budget)
	defer cancel()
	out.Faults, out.Entities, err = r.sample(sampling, q)
	return out, err
}

// unreadStates counts the entities of a durable-state type whose state has a
// version that a module cannot read, by the event type of the state. If ctx
// ends first, it returns the counts so far and complete is false.
func (r *Replays) unreadStates(ctx context.Context, q modules.CompatibilityQuery, states *manifest.States) (unread []modules.MissingEvents, complete bool, err error) {
	counts := map[string]uint64{}
	err = eachEntity(ctx, r.opts.Machine, q.Shard, q.EntityType, "", func(e *eventlog.Info) error {
		event, err := r.newest(ctx, q.Shard, e.Entity)
		if err == nil && states.Check(manifest.StateEventVersion(event)) != nil {
			counts[event]++
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		return nil, false, err
	}
	return missingOf(counts, nil), err == nil, nil
}

// missingOf returns the counted event types that are not listed, by name.
func missingOf(counts map[string]uint64, listed map[string]bool) (out []modules.MissingEvents) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if !listed[name] {
			out = append(out, modules.MissingEvents{EventType: name, Count: counts[name]})
		}
	}
	return out
}

// newest returns the type of an entity's newest event, or "" if it has none.
func (r *Replays) newest(ctx context.Context, shard sharding.ShardID, id sharding.EntityID) (event string, err error) {
	info, err := r.opts.Machine.Info(shard, id)
	if err != nil || info.Deleted || info.Sequence == 0 {
		return "", err
	}
	_, err = eventAt(ctx, r.opts.Machine, shard, id, info.Sequence, func(r *journal.Record, i int) { event = r.Events[i].Type })
	if cut := (*journal.TruncatedError)(nil); errors.As(err, &cut) {
		err = nil // if the event was compacted in the meantime, the entity has a newer event
	}
	return event, err
}

// fencePause is the pause between two checks in fence.
const fencePause = 10 * time.Millisecond

// fence returns once the log of a shard has the given revision of the
// activations and this node, which leads the shard, has applied all earlier
// entries.
func (r *Replays) fence(ctx context.Context, shard sharding.ShardID, revision uint64) error {
	for r.opts.Types.ReachedRevision() < revision {
		select {
		case <-time.After(fencePause):
		case <-ctx.Done():
			return request.ErrModuleNotLoaded
		}
	}
	return r.opts.Shards.Post(ctx, shard, &request.Request{Kind: request.Fence, Revision: revision})
}

// present reports whether the shard has entities of the type that are not
// deleted.
func (r *Replays) present(ctx context.Context, q modules.CompatibilityQuery) (bool, error) {
	for after := ""; ; {
		page, err := r.opts.Machine.Page(q.Shard, eventlog.PageQuery{Type: q.EntityType, After: after, Limit: 1, Looks: scanRows})
		if err = errors.Join(err, ctx.Err()); err != nil || len(page.Entities) > 0 {
			return len(page.Entities) > 0, err
		}
		if after = page.Next; after == "" {
			return false, nil
		}
	}
}

// listedEvents returns the event types that a manifest lists for a replayed
// type, or nil if any type is allowed.
func listedEvents(t *manifest.EntityType) map[string]bool {
	if t.Events == nil || !t.Kind.IsReplayed() {
		return nil
	}
	listed := make(map[string]bool, len(t.Events))
	for i := range t.Events {
		listed[t.Events[i].Type] = true
	}
	return listed
}
