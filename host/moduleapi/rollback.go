package moduleapi

import (
	"context"
	"time"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// touchedShards is the number of shards that are checked concurrently
	// before a rollback, and touchedBudget is the time limit for each shard.
	touchedShards = 16
	touchedBudget = 10 * time.Second
)

// RollbackModule makes the previous module of an entity type serve it again.
func (s *handler) RollbackModule(ctx context.Context, r *connect.Request[modulev1.RollbackModuleRequest]) (*connect.Response[modulev1.RollbackModuleResponse], error) {
	if err := sharding.ValidateEntityType(r.Msg.GetEntityType()); err != nil {
		return nil, status.Public(s.Log, err)
	}
	looks := RollbackCheck{Force: r.Msg.GetForce(), Touched: func(ctx context.Context, t modules.RollbackType) (*modulev1.CheckCompatibilityResponse, error) {
		return s.checkTouched(ctx, modules.CompatibilityQuery{EntityType: t.Name, Digest: t.Digest, Budget: touchedBudget, ExcludeWrittenBy: t.Before, Initial: t.First, MinRevision: t.Fence, TruncatedOnly: true})
	}}
	back := modules.TakeBack{EntityType: r.Msg.GetEntityType(), Revision: r.Msg.GetRevision(), By: authorize.Caller(ctx), Entities: s, Approver: s.owners.approver()}
	if s.Compatibility != nil {
		back.Check = looks.Check
		back.Truncated = modules.Truncated{Prove: true, Force: r.Msg.GetForce(), Warn: func(text string) { looks.Remarks = append(looks.Remarks, text) }}
	}
	now, err := s.Modules.Rollback(ctx, back)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(&modulev1.RollbackModuleResponse{
		Digest: now.Digest.String(), Revision: now.Revision, EntityTypes: now.Types, Warnings: looks.Remarks,
	}), nil
}

// checkTouched checks all shards, touchedShards at a time, each on the node
// that leads it. A paced check, or a check that asks only for presence, ends
// as soon as one shard determines the result.
func (s *handler) checkTouched(ctx context.Context, q modules.CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
	looking, enough := context.WithCancel(ctx)
	defer enough()
	sum := checkEach(looking, s.Entities.Shards(), touchedShards, func(ctx context.Context, shard sharding.ShardID) (found *modulev1.CheckCompatibilityResponse, err error) {
		one := q
		one.Shard = shard
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case q.Paced:
			found, err = s.checkWholeShard(ctx, one)
		default:
			found, err = s.checkShard(ctx, one)
		}
		if q.Paced && isIncompatible(q, found) || q.PresenceOnly && found.GetEntities() > 0 {
			enough()
		}
		return found, err
	}, func(shard sharding.ShardID, err error) {
		if looking.Err() != nil {
			return
		}
		s.Log.Warn("cannot check the entities of a shard that were written since the switch", "entity_type", q.EntityType, "shard_id", shard, "error", err)
	})
	return sum, ctx.Err()
}

// Touched checks all shards for entities that modules other than q.ExcludeWrittenBy
// have written and on which the module of q fails.
func (s *handler) Touched(ctx context.Context, q modules.CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
	return s.checkTouched(ctx, q)
}

func parseDigests(texts []string) (out []journal.Digest, err error) {
	for _, text := range texts {
		d, err := parseDigest(text)
		if err != nil {
			return nil, err
		}
		out = append(out, d)
	}
	return out, nil
}
