package host

import (
	"context"

	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// sizedEvents bounds the events that are folded to tell how large a state is.
const sizedEvents = 4096

// size fills in where an entity's newest snapshot is, and how large its state
// is: in that snapshot, or as the last of the states of a type that keeps only
// these. One in memory without a snapshot is folded for it, where it has few
// events and nobody waits for that.
func (s entityService) size(ctx context.Context, shard sharding.ShardID, id sharding.EntityID, info *rpc.EntityInfo) error {
	if t := s.n.bindings.Lookup(id.Type); t != nil && t.Durable {
		return s.n.machine.Read(ctx, shard, id, max(info.Sequence, 1), func(_ journal.Position, r *journal.Record) error {
			if n := len(r.Events); n > 0 && info.Status != "deleted" {
				info.StateBytes = uint64(len(r.Events[n-1].Payload))
			}
			return nil
		})
	}
	at, bytes, err := s.n.machine.NewestSnapshot(shard, id)
	info.SnapshotSequence, info.StateBytes = at, uint64(bytes)
	if err != nil || at > 0 || !info.Resident || info.Status != "active" || info.Sequence == 0 || info.Sequence > sizedEvents {
		return err
	}
	select {
	case s.n.folds <- struct{}{}:
		defer func() { <-s.n.folds }()
	default:
		return nil
	}
	if state, _, err := (stateService{s.n}).fold(ctx, id, nil); err == nil {
		info.StateBytes = uint64(len(state))
	}
	return ctx.Err()
}
