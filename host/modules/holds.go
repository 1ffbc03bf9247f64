package modules

import (
	"context"
	"maps"
	"time"

	"github.com/hostd/hostd/sharding/meta"
)

// holdTime bounds the look at a type that is held. The coordinator ends holds
// that last longer than twice as long.
const holdTime = 15 * time.Second

// holds keep the entities of types from leaving records while they are looked
// at, until the types are bound in another way. They are for one goroutine.
type holds struct {
	*Service
	held []heldType
}

// heldType is a type whose entities leave no records since a revision.
type heldType struct {
	name string
	at   uint64
}

// hold holds a type that is served under the revision over, and returns the one
// since which it is held.
func (h *holds) hold(ctx context.Context, entityType string, over uint64) (uint64, error) {
	res, err := h.metadata.Do(ctx, meta.HoldType(entityType, over))
	if err == nil {
		h.held = append(h.held, heldType{entityType, res.Revision})
	}
	return res.Revision, err
}

// release ends the holds where err says that nothing was bound. What it does
// not come to is the coordinator's.
func (h *holds) release(ctx context.Context, err error) {
	if err == nil || len(h.held) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdTime)
	defer cancel()
	for _, t := range h.held {
		if _, err := h.metadata.Do(ctx, meta.ReleaseType(t.name, t.at)); err != nil {
			h.types.logger.Warn("a type is held on", "entity_type", t.name, "error", err)
		}
	}
}

// heldSince is a hold of a type, and when the runner saw it first.
type heldSince struct {
	revision uint64
	at       time.Time
}

// releaseOverdue ends the holds of types that have lasted for long: whoever
// holds one ends it by itself, unless it has stopped. What that one would bind
// later is refused then, for the type is served under another revision.
func (r *Rollouts) releaseOverdue(ctx context.Context, view *meta.View) {
	for _, b := range r.overdue(view) {
		releasing, cancel := context.WithTimeout(ctx, lookTime)
		_, err := r.metadata.Do(releasing, meta.ReleaseType(b.EntityType, b.Held))
		cancel()
		r.types.logger.Warn("a type was held for long and goes on", "entity_type", b.EntityType, "error", err)
	}
}

// overdue are the bindings whose hold this node has seen for long.
func (r *Rollouts) overdue(view *meta.View) (all []meta.Binding) {
	for _, b := range view.Bindings() {
		since := r.held[b.EntityType]
		switch {
		case b.Held == 0:
		case since.revision != b.Held:
			r.held[b.EntityType] = heldSince{b.Held, r.now()}
		case r.now().Sub(since.at) > 2*holdTime:
			all = append(all, b)
		}
	}
	maps.DeleteFunc(r.held, func(name string, since heldSince) bool {
		b, _ := view.Binding(name)
		return b.Held != since.revision
	})
	return all
}
