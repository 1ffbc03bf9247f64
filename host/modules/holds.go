package modules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
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

// heldType is a type whose entities leave no records since a revision. If it is
// not known whether it is held, at is 0 and over the revision it was served
// under.
type heldType struct {
	name     string
	over, at uint64
}

// hold holds a type that is served under the revision over, and returns the one
// since which it is held.
func (h *holds) hold(ctx context.Context, entityType string, over uint64) (uint64, error) {
	res, unknown, err := h.repeat(ctx, meta.PauseTypeWrites(entityType, over))
	if err == nil || unknown {
		h.held = append(h.held, heldType{entityType, over, res.Revision})
	}
	return res.Revision, err
}

// repeat carries out a command that has the same effect if it is carried out
// twice, so that a change of the metadata's leader does not end what it is a
// part of. If it fails, unknown says that it may have taken effect.
func (s *Service) repeat(ctx context.Context, command []byte) (res meta.Result, unknown bool, err error) {
	for {
		res, err = s.metadata.Do(ctx, command)
		elsewhere := (*sharding.NotLeaderError)(nil)
		switch {
		case errors.Is(err, cluster.ErrUnknownOutcome) && ctx.Err() == nil:
			unknown = true
			continue
		case errors.Is(err, cluster.ErrUnknownOutcome):
			unknown = true
		case unknown && (errors.As(err, &elsewhere) || errors.Is(err, peer.ErrUnavailable)):
			err = fmt.Errorf("%w: %v", cluster.ErrUnknownOutcome, err) // of the attempt before
		}
		return res, unknown, err
	}
}

// release ends the holds if err says that nothing was bound. It waits for a
// leader of the metadata longer than callers do, because commands wait as long
// as a type is held. What it does not come to is the coordinator's.
func (h *holds) release(ctx context.Context, err error) {
	if err == nil || len(h.held) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(request.WithoutCaller(context.WithoutCancel(ctx)), holdTime)
	defer cancel()
	for _, t := range h.held {
		if err := h.releaseOne(ctx, t); err != nil {
			h.types.logger.Warn("a type is held on", "entity_type", t.name, "error", err)
		}
	}
}

func (h *holds) releaseOne(ctx context.Context, t heldType) error {
	if t.at == 0 {
		if err := h.metadata.CatchUp(ctx); err != nil {
			return err
		}
		b, _ := h.metadata.View().Binding(t.name)
		if b.PausedSince == 0 || b.Revision != t.over {
			return nil
		}
		t.at = b.PausedSince
	}
	_, _, err := h.repeat(ctx, meta.ResumeTypeWrites(t.name, t.at))
	return err
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
		_, err := r.metadata.Do(releasing, meta.ResumeTypeWrites(b.EntityType, b.PausedSince))
		cancel()
		r.types.logger.Warn("a type was held for long and goes on", "entity_type", b.EntityType, "error", err)
	}
}

// overdue are the bindings whose hold this node has seen for long.
func (r *Rollouts) overdue(view *meta.View) (all []meta.Binding) {
	for _, b := range view.Bindings() {
		since := r.held[b.EntityType]
		switch {
		case b.PausedSince == 0:
		case since.revision != b.PausedSince:
			r.held[b.EntityType] = heldSince{b.PausedSince, r.now()}
		case r.now().Sub(since.at) > 2*holdTime:
			all = append(all, b)
		}
	}
	maps.DeleteFunc(r.held, func(name string, since heldSince) bool {
		b, _ := view.Binding(name)
		return b.PausedSince != since.revision
	})
	return all
}
