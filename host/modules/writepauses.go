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

// pauseTime bounds a check that runs while a type is write-paused. The metadata
// leader ends pauses that last longer than twice that time.
const pauseTime = 15 * time.Second

// writePauses pauses the writes of types while their entities are checked,
// until a different module is activated for the types. It belongs to one
// goroutine.
type writePauses struct {
	*Service
	paused []pausedType
}

// pausedType is a type whose writes are paused. at is the revision of the
// pause, or 0 if it is not known whether the pause took effect. over is the
// revision under which the type was served.
type pausedType struct {
	name     string
	over, at uint64
}

// pause pauses the writes of a type that is served under the revision over, and
// returns the revision of the pause.
func (h *writePauses) pause(ctx context.Context, entityType string, over uint64) (uint64, error) {
	res, unknown, err := h.repeat(ctx, meta.PauseTypeWrites(entityType, over))
	if err == nil || unknown {
		h.paused = append(h.paused, pausedType{entityType, over, res.Revision})
	}
	return res.Revision, err
}

// repeat executes an idempotent command and repeats it if the outcome is
// unknown, so that a leader change of the metadata does not abort the whole
// operation. If repeat fails, unknown reports that the command may have taken
// effect.
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
			err = fmt.Errorf("%w: %v", cluster.ErrUnknownOutcome, err) // the previous attempt has an unknown outcome
		}
		return res, unknown, err
	}
}

// release ends the pauses if err reports that no module was activated. It waits
// for a metadata leader longer than callers do, because commands wait while a
// type is paused. If it fails, the metadata leader ends the pauses later.
func (h *writePauses) release(ctx context.Context, err error) {
	if err == nil || len(h.paused) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(request.WithoutCaller(context.WithoutCancel(ctx)), pauseTime)
	defer cancel()
	for _, t := range h.paused {
		if err := h.releaseOne(ctx, t); err != nil {
			h.types.logger.Warn("cannot resume the writes of an entity type", "entity_type", t.name, "error", err)
		}
	}
}

func (h *writePauses) releaseOne(ctx context.Context, t pausedType) error {
	if t.at == 0 {
		if err := h.metadata.CatchUp(ctx); err != nil {
			return err
		}
		b, _ := h.metadata.View().Activation(t.name)
		if b.PausedSince == 0 || b.Revision != t.over {
			return nil
		}
		t.at = b.PausedSince
	}
	_, _, err := h.repeat(ctx, meta.ResumeTypeWrites(t.name, t.at))
	return err
}

// pausedSince identifies a write pause of a type, and says when this node first
// saw it.
type pausedSince struct {
	revision uint64
	at       time.Time
}

// releaseOverdue ends write pauses that have lasted too long. The holder of a
// pause ends it itself unless it has stopped. If the holder tries to activate a
// module later, the metadata rejects that, because the type is then served
// under a different revision.
func (r *Rollouts) releaseOverdue(ctx context.Context, view *meta.View) {
	for _, b := range r.overdue(view) {
		releasing, cancel := context.WithTimeout(ctx, lookTime)
		_, err := r.metadata.Do(releasing, meta.ResumeTypeWrites(b.EntityType, b.PausedSince))
		cancel()
		r.types.logger.Warn("resumed the writes of an entity type that was paused for too long", "entity_type", b.EntityType, "error", err)
	}
}

// overdue returns the activations whose write pause this node has seen for too
// long.
func (r *Rollouts) overdue(view *meta.View) (all []meta.Activation) {
	for _, b := range view.Activations() {
		since := r.held[b.EntityType]
		switch {
		case b.PausedSince == 0:
		case since.revision != b.PausedSince:
			r.held[b.EntityType] = pausedSince{b.PausedSince, r.now()}
		case r.now().Sub(since.at) > 2*pauseTime:
			all = append(all, b)
		}
	}
	maps.DeleteFunc(r.held, func(name string, since pausedSince) bool {
		b, _ := view.Activation(name)
		return b.PausedSince != since.revision
	})
	return all
}
