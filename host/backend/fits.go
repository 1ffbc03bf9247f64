package backend

import (
	"context"
	"slices"
	"strings"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc"
)

// fits implements rpc.Fits.
type fits struct {
	*Parts
	catalogues *catalogues
}

// Fit implements rpc.Fits.
func (f fits) Fit(ctx context.Context, q rpc.FitQuery) (out rpc.Fit, err error) {
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
