package entityapi

import (
	"context"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// entities implements Entities.
type entities struct{ *Parts }

func (s entities) Shards() uint32 { return s.ShardCount }

func (s entities) ShardOfPrefix(entityType, idPrefix string) (sharding.ShardID, bool) {
	return s.Keys.Prefix(entityType, idPrefix)
}

func (s entities) ShardOf(id sharding.EntityID) sharding.ShardID { return s.ShardRouter.ShardOf(id) }

func (s entities) Get(ctx context.Context, id sharding.EntityID) (EntityInfo, error) {
	shard := s.ShardRouter.ShardOf(id)
	head, err := s.Machine.Info(shard, id)
	if err != nil {
		return EntityInfo{}, err
	}
	live, err := s.inspect(ctx, []sharding.EntityID{id})
	if err != nil {
		return EntityInfo{}, err
	}
	info := EntityInfo{Sequence: head.Sequence, Shard: shard, Node: s.Self, Status: "active"}
	if t := s.Types.For(id); t != nil {
		info.Module = t.Digest
	}
	switch {
	case head.Records == 0:
		info.Status = "absent"
	case head.Deleted:
		info.Status = "deleted"
	}
	if l := live[0]; l != nil {
		info.Resident, info.LastError, info.Faults = l.Resident, l.LastErr, l.Faults
		switch t := s.Types.For(id); {
		case l.Status == "quarantined":
			info.Status, info.QuarantinedUntil = "quarantined", l.QuarantinedUntil
		case l.Resident && t != nil && t.Transient:
			info.Status = "active"
		}
	}
	if info.PendingMessages, _, err = s.Machine.PendingMessages(shard, id); err != nil {
		return EntityInfo{}, err
	}
	if err = s.size(ctx, shard, id, &info); err != nil {
		return EntityInfo{}, err
	}
	if info.Timers, err = s.Machine.TimersOf(ctx, shard, id, shownTimers); err != nil {
		return EntityInfo{}, err
	}
	info.Fuel, info.Actions, err = s.history(ctx, shard, id, head.Sequence)
	return info, err
}

// sizedEvents limits the events that are replayed to determine the size of a
// state.
const sizedEvents = 4096

// size sets the sequence of an entity's newest snapshot and the size of its
// state. That is the size of the snapshot, or of the last state if the type
// stores only states. If a resident entity has no snapshot, it is replayed, but
// only if it has few events and the replay need not wait.
func (s entities) size(ctx context.Context, shard sharding.ShardID, id sharding.EntityID, info *EntityInfo) error {
	if t := s.Types.For(id); t != nil && t.Durable {
		return s.Machine.Read(ctx, shard, id, max(info.Sequence, 1), func(_ journal.Position, r *journal.Record) error {
			if n := len(r.Events); n > 0 && info.Status != "deleted" {
				info.StateBytes = uint64(len(r.Events[n-1].Payload))
			}
			return nil
		})
	}
	at, bytes, err := s.Machine.NewestSnapshot(shard, id)
	info.SnapshotSequence, info.StateBytes = at, uint64(bytes)
	if err != nil || at > 0 || !info.Resident || info.Status != "active" || info.Sequence == 0 || info.Sequence > sizedEvents {
		return err
	}
	if state, ok := s.Replays.TryNewest(ctx, id); ok {
		info.StateBytes = uint64(len(state))
	}
	return ctx.Err()
}
