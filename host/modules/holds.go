package modules

import (
	"context"
	"maps"
	"time"

	"github.com/hostd/hostd/sharding/meta"
)

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
