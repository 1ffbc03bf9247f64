package replay

import (
	"context"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// explained is how often a module is compared with itself. One comparison is
	// not enough: for example, a map with two members iterates in the same order
	// half of the time.
	explained = 4
	// variedSince is the base of the clocks of varied instances, in unix
	// nanoseconds.
	variedSince = int64(1_000_000_000 * time.Second)
)

// vary makes the replayer use different batches, a different clock and
// different random numbers than the serving module does, so that a state that
// depends on one of these is different.
func (f *replayer) vary(by uint64) {
	f.batches = growing
	f.bounds = f.bounds.WithVariation(variedSince+int64(by)*int64(time.Hour), by)
}

// explain checks whether a difference is caused by a module that computes two
// different states from the same events. If that is the tried module, the
// difference becomes a fault. If it is the serving module, there is nothing to
// compare with, and the entity is reported as uncompared.
func (v *verifier) explain(ctx context.Context, id sharding.EntityID, end journal.Sequence, base *journal.Snapshot, out *Verified) error {
	v.close()
	for _, f := range []*replayer{&v.tried, &v.serving} {
		says, err := v.twice(ctx, f, id, end, base)
		switch {
		case err != nil:
			return err
		case says == "":
		case f == &v.tried:
			out.Fault, out.Difference, out.Patch, out.PatchTruncated = true, says, nil, false
			return nil
		default:
			*out = Verified{Events: out.Events, Uncompared: true}
			return nil
		}
	}
	return nil
}

// twice compares two replays of the same events with one module, using
// different batches, clocks and random numbers. says is empty if the states are
// equal.
func (v *verifier) twice(ctx context.Context, f *replayer, id sharding.EntityID, end journal.Sequence, base *journal.Snapshot) (says string, err error) {
	for by := range uint64(explained) {
		own := &verifier{Options: v.Options, pace: v.pace, shard: v.shard, entityType: v.entityType, kind: v.kind, encoding: v.encoding, alike: true}
		for _, half := range []*replayer{&own.tried, &own.serving} {
			half.module, half.digest, half.index, half.states = f.module, f.digest, f.index, f.states
			half.setBounds(v.served)
		}
		own.serving.batches = paced
		own.tried.vary(2 + by)
		stop := context.AfterFunc(ctx, own.interrupt)
		out, err := own.replay(ctx, id, end, base, false)
		stop()
		own.close()
		switch {
		case err != nil || ctx.Err() != nil:
			return "", err
		case out.Fault:
			return out.Difference, nil
		case out.Difference != "":
			return "replaying the same events in different batches and with different random numbers gives two states: " + out.Difference, nil
		}
	}
	return "", nil
}
