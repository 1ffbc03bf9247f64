package replay

import (
	"context"
	"errors"

	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/sharding"
)

const (
	// sampleOf is the number of entities of a shard from which a sample is
	// drawn.
	sampleOf = 4 * scanPage
	// sampleEvents bounds the history of a sampled entity. Entities with longer
	// histories are skipped.
	sampleEvents = 10_000
)

// sample replays a few entities of one shard with a module. It returns the
// entities on which the module fails and how many were replayed. If ctx ends
// early, it returns the results so far without an error.
func (r *Replays) sample(ctx context.Context, q modules.CompatibilityQuery) (faults []modules.ReplayFault, entities int, err error) {
	select {
	case r.verifying <- struct{}{}:
		defer func() { <-r.verifying }()
	case <-ctx.Done():
		return nil, 0, nil
	}
	v := &verifier{Options: r.opts, shard: q.Shard, entityType: q.EntityType}
	defer v.close()
	defer context.AfterFunc(ctx, v.interrupt)()
	drawn, err := v.draw(ctx, q)
	if err == nil && len(drawn) > 0 {
		err = v.open(ctx, q.Digest)
	}
	for i := 0; err == nil && i < len(drawn); i++ {
		err = v.verify(ctx, drawn[i], func(d Verified) error {
			if entities++; d.Fault {
				faults = append(faults, modules.ReplayFault{EntityID: d.EntityID, At: d.At, EventType: d.EventType, Message: d.Difference})
			}
			return nil
		})
	}
	if ctx.Err() != nil {
		err = nil
	}
	return faults, entities, err
}

// draw draws q.Sample of the first sampleOf entities of the shard with equal
// probability.
func (v *verifier) draw(ctx context.Context, q modules.CompatibilityQuery) ([]sharding.EntityID, error) {
	sample := drawn{size: q.Sample}
	err := v.each(ctx, func(id sharding.EntityID) error {
		info, err := v.Machine.Info(v.shard, id)
		if err != nil || info.Sequence-info.FirstSequence() > sampleEvents {
			return err
		}
		if sample.offer(id, q.Draw); sample.seen == sampleOf {
			return errDone
		}
		return nil
	})
	if errors.Is(err, errDone) {
		err = nil
	}
	return sample.ids, err
}
