package replay

import (
	"context"
	"errors"

	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// sampleOf is how many entities of a shard a sample is drawn from.
	sampleOf = 4 * verifyPage
	// sampleEvents bounds the history of an entity that is drawn: one with more
	// is passed over.
	sampleEvents = 10_000
)

// Sample folds a few entities of one shard by a module and tells those on which
// it fails, and how many there were. What it has found when ctx ends is no
// error.
func (r *Replays) Sample(ctx context.Context, q modules.FitQuery) (faults []modules.FitFault, entities int, err error) {
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
				faults = append(faults, modules.FitFault{EntityID: d.EntityID, At: d.At, EventType: d.EventType, Message: d.Difference})
			}
			return nil
		})
	}
	if ctx.Err() != nil {
		err = nil
	}
	return faults, entities, err
}

// draw draws q.Sample of the first sampleOf entities of the shard, of which
// each is as likely as any other.
func (v *verifier) draw(ctx context.Context, q modules.FitQuery) (drawn []sharding.EntityID, err error) {
	seen := 0
	err = v.each(ctx, func(id sharding.EntityID) error {
		info, err := v.Machine.Info(v.shard, id)
		if err != nil || info.Sequence-info.FirstSequence() > sampleEvents {
			return err
		}
		if seen++; len(drawn) < q.Sample {
			drawn = append(drawn, id)
		} else if at := q.Draw(seen); at < q.Sample {
			drawn[at] = id
		}
		if seen == sampleOf {
			return errDone
		}
		return nil
	})
	if errors.Is(err, errDone) {
		err = nil
	}
	return drawn, err
}

// eventType is that of the event of a sequence; empty where it is not there.
func (v *verifier) eventType(ctx context.Context, id sharding.EntityID, at journal.Sequence) (name string) {
	_ = v.Machine.Read(ctx, v.shard, id, at, func(_ journal.Position, r *journal.Record) error {
		if i := int(at - r.Expected - 1); at > r.Expected && i < len(r.Events) {
			name = r.Events[i].Type
		}
		return errDone
	})
	return name
}
