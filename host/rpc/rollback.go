package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/fitsum"
	"github.com/hostd/hostd/host/rpc/rollback"
	"github.com/hostd/hostd/host/rpc/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// touchedShards is how many shards are looked at at a time before a type goes
	// back, and touchedBudget how long one is.
	touchedShards = 16
	touchedBudget = 10 * time.Second
)

// Rollback binds an entity type to the module that served it before.
func (s *moduleService) Rollback(ctx context.Context, r *connect.Request[modulev1.RollbackRequest]) (*connect.Response[modulev1.RollbackResponse], error) {
	if err := sharding.ValidateEntityType(r.Msg.GetEntityType()); err != nil {
		return nil, status.Public(s.log, err)
	}
	looks := rollback.Looks{Force: r.Msg.GetForce(), Touched: func(ctx context.Context, t rollback.Type) (*modulev1.FitResponse, error) {
		return s.touched(ctx, FitQuery{EntityType: t.Name, Digest: t.Digest, Budget: touchedBudget, WrittenNotBy: t.Before})
	}}
	back := TakeBack{EntityType: r.Msg.GetEntityType(), Revision: r.Msg.GetRevision(), By: authorize.Caller(ctx), Stored: s.stored, Allow: s.owners.allow()}
	if s.fits != nil {
		back.Check = looks.Check
	}
	now, err := s.modules.Rollback(ctx, back)
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&modulev1.RollbackResponse{
		Digest: now.Digest.String(), Revision: now.Revision, EntityTypes: now.Types, Remarks: looks.Again(ctx),
	}), nil
}

// touched looks at all shards, several at a time, where they are led.
func (s *moduleService) touched(ctx context.Context, q FitQuery) (*modulev1.FitResponse, error) {
	sum := fitsum.Each(ctx, s.verify.entities.Shards(), touchedShards, func(ctx context.Context, shard sharding.ShardID) (*modulev1.FitResponse, error) {
		one := q
		one.Shard = shard
		return s.fitShard(ctx, one)
	}, func(shard sharding.ShardID, err error) {
		s.log.Warn("entities that were written since a module served are not looked at in a shard", "entity_type", q.EntityType, "shard_id", shard, "error", err)
	})
	return sum, ctx.Err()
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
