package host

import (
	"context"

	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// size fills in where an entity's newest snapshot is, and how large its state
// is as far as that is stored: in a snapshot, or as the last of the states of a
// type that keeps only these.
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
	return err
}
