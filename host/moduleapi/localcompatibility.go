package moduleapi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// localCompatibility implements Compatibility.
type localCompatibility struct {
	*Parts
	catalogues *catalogues
}

// CheckCompatibility implements Compatibility.
func (f localCompatibility) CheckCompatibility(ctx context.Context, q modules.CompatibilityQuery) (out modules.Compatibility, err error) {
	if q.PresenceOnly && !q.TruncatedOnly && q.MinRevision > 0 {
		if err := f.fence(ctx, q.Shard, q.MinRevision); err != nil {
			return out, err
		}
	}
	if out.Present, err = f.present(ctx, q); err != nil || q.PresenceOnly && !q.TruncatedOnly {
		return out, err
	}
	t := f.Modules.Types.ServedType(q.EntityType)
	if t == nil {
		return out, request.ErrModuleNotLoaded
	}
	m, err := f.Modules.Distribution.ToRun(ctx, q.Digest, "")
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
		return f.Replays.Truncated(ctx, q) // the budget of the query starts when the check begins, not while the check waits for its turn
	}
	if len(q.ExcludeWrittenBy) > 0 || q.TruncatedOnly {
		folding, cancel := context.WithTimeout(ctx, q.Budget)
		defer cancel()
		if q.MinRevision > 0 {
			if err := f.fence(folding, q.Shard, q.MinRevision); err != nil {
				return out, err
			}
		}
		if len(q.ExcludeWrittenBy) == 0 {
			return f.Replays.Truncated(folding, q)
		}
		return f.Replays.Touched(folding, q)
	}
	if about.Events != nil && about.Kind.IsReplayed() && !t.Durable {
		listed := make(map[string]bool, len(about.Events))
		for i := range about.Events {
			listed[about.Events[i].Type] = true
		}
		counting, cancel := context.WithTimeout(ctx, q.Budget)
		defer cancel()
		out.Complete, err = f.catalogues.of(counting, f.Machine, catalogueKey{q.Shard, q.EntityType}, func(counts map[string]uint64) {
			for name, n := range counts {
				if !listed[name] {
					out.Missing = append(out.Missing, modules.MissingEvents{EventType: name, Count: n})
				}
			}
		})
		if err != nil {
			return out, err
		}
		slices.SortFunc(out.Missing, func(a, b modules.MissingEvents) int { return strings.Compare(a.EventType, b.EventType) })
	}
	if about.Kind == manifest.DurableState && t.Durable {
		looking, cancel := context.WithTimeout(ctx, q.Budget)
		defer cancel()
		states := about.States()
		if out.Missing, out.Complete, err = f.unreadStates(looking, q, &states); err != nil {
			return out, err
		}
	}
	if q.Sample == 0 {
		return out, nil
	}
	sampling, cancel := context.WithTimeout(ctx, q.Budget)
	defer cancel()
	out.Faults, out.Entities, err = f.Replays.Sample(sampling, q)
	return out, err
}

// unreadStates counts the entities of a durable-state type whose state has a
// version that a module cannot read, by the event type of the state. If ctx
// ends first, it returns the counts so far and complete is false.
func (f localCompatibility) unreadStates(ctx context.Context, q modules.CompatibilityQuery, states *manifest.States) (unread []modules.MissingEvents, complete bool, err error) {
	counts, complete := map[string]uint64{}, true
	for after := ""; ; {
		page, err := f.Machine.Page(q.Shard, eventlog.PageQuery{Type: q.EntityType, After: after, Limit: cataloguePage, Looks: 16 * cataloguePage})
		if err != nil {
			return nil, false, err
		}
		for i := range page.Entities {
			if ctx.Err() != nil {
				break
			}
			event, err := f.newest(ctx, q.Shard, page.Entities[i].Entity)
			if err != nil && ctx.Err() == nil {
				return nil, false, err
			}
			if states.Check(manifest.StateEventVersion(event)) != nil {
				counts[event]++
			}
		}
		if complete = ctx.Err() == nil; !complete {
			break
		}
		if after = page.Next; after == "" {
			break
		}
	}
	for event, n := range counts {
		unread = append(unread, modules.MissingEvents{EventType: event, Count: n})
	}
	slices.SortFunc(unread, func(a, b modules.MissingEvents) int { return strings.Compare(a.EventType, b.EventType) })
	return unread, complete, nil
}

// newest returns the type of an entity's newest event, or "" if it has none.
func (f localCompatibility) newest(ctx context.Context, shard sharding.ShardID, id sharding.EntityID) (event string, err error) {
	info, err := f.Machine.Info(shard, id)
	if err != nil || info.Deleted || info.Sequence == 0 {
		return "", err
	}
	err = f.Machine.Read(ctx, shard, id, info.Sequence, func(_ journal.Position, r *journal.Record) error {
		if n := len(r.Events); n > 0 && r.Last() == info.Sequence {
			event = r.Events[n-1].Type
		}
		return errRead
	})
	if cut := (*journal.TruncatedError)(nil); errors.Is(err, errRead) || errors.As(err, &cut) {
		err = nil // if the event was compacted in the meantime, the entity has a newer event
	}
	return event, err
}

// fencePause is the pause between two checks in fence.
const fencePause = 10 * time.Millisecond

// fence returns once the log of a shard has the given revision of the
// activations and this node, which leads the shard, has applied all earlier
// entries.
func (f localCompatibility) fence(ctx context.Context, shard sharding.ShardID, revision uint64) error {
	for f.Modules.Types.ReachedRevision() < revision {
		select {
		case <-time.After(fencePause):
		case <-ctx.Done():
			return request.ErrModuleNotLoaded
		}
	}
	return f.Shards.Post(ctx, shard, &request.Request{Kind: request.Fence, Revision: revision})
}

// present reports whether the shard has entities of the type that are not
// deleted.
func (f localCompatibility) present(ctx context.Context, q modules.CompatibilityQuery) (bool, error) {
	for after := ""; ; {
		page, err := f.Machine.Page(q.Shard, eventlog.PageQuery{Type: q.EntityType, After: after, Limit: 1, Looks: 16 * cataloguePage})
		if err = errors.Join(err, ctx.Err()); err != nil || len(page.Entities) > 0 {
			return len(page.Entities) > 0, err
		}
		if after = page.Next; after == "" {
			return false, nil
		}
	}
}
