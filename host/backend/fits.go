package backend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// fits implements rpc.Fits.
type fits struct {
	*Parts
	catalogues *catalogues
}

// Fit implements rpc.Fits.
func (f fits) Fit(ctx context.Context, q rpc.FitQuery) (out rpc.Fit, err error) {
	if out.Present, err = f.present(ctx, q); err != nil || q.PresenceOnly {
		return out, err
	}
	t := f.Modules.Types.Served(q.EntityType)
	if t == nil {
		return out, request.ErrModuleNotLoaded
	}
	m, err := f.Modules.Distribution.Module(ctx, q.Digest, "")
	if err != nil {
		return out, err
	}
	about, _, ok := m.Manifest().Type(q.EntityType)
	if !ok {
		return out, &request.InvalidModuleError{Reason: "the module does not serve the entity type"}
	}
	out.Complete = true
	if t.Transient || about.Kind == manifest.Transient {
		return out, nil // nothing is stored
	}
	if len(q.WrittenNotBy) > 0 {
		folding, cancel := context.WithTimeout(ctx, q.Budget)
		defer cancel()
		if q.Fence > 0 {
			if err := f.fence(folding, q.Shard, q.Fence); err != nil {
				return out, err
			}
		}
		return f.Replays.Touched(folding, q)
	}
	if about.Events != nil && about.Kind == manifest.EventSourced && !t.Durable {
		listed := make(map[string]bool, len(about.Events))
		for i := range about.Events {
			listed[about.Events[i].Type] = true
		}
		counting, cancel := context.WithTimeout(ctx, q.Budget)
		defer cancel()
		out.Complete, err = f.catalogues.of(counting, f.Machine, catalogueKey{q.Shard, q.EntityType}, func(counts map[string]uint64) {
			for name, n := range counts {
				if !listed[name] {
					out.Missing = append(out.Missing, rpc.MissingEvents{EventType: name, Count: n})
				}
			}
		})
		if err != nil {
			return out, err
		}
		slices.SortFunc(out.Missing, func(a, b rpc.MissingEvents) int { return strings.Compare(a.EventType, b.EventType) })
	}
	if q.Sample == 0 {
		return out, nil
	}
	sampling, cancel := context.WithTimeout(ctx, q.Budget)
	defer cancel()
	out.Faults, out.Entities, err = f.Replays.Sample(sampling, q)
	return out, err
}

// fencePause is between two looks at what this node serves.
const fencePause = 10 * time.Millisecond

// fence returns once the log of a shard has a revision of the bindings and this
// node, which leads the shard, has applied what was written before.
func (f fits) fence(ctx context.Context, shard sharding.ShardID, revision uint64) error {
	for f.Modules.Types.Reached() < revision {
		select {
		case <-time.After(fencePause):
		case <-ctx.Done():
			return request.ErrModuleNotLoaded
		}
	}
	return f.post(ctx, shard, &request.Request{Kind: request.Fence, Revision: revision})
}

// present reports that the shard has entities of the type that are not deleted.
func (f fits) present(ctx context.Context, q rpc.FitQuery) (bool, error) {
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
