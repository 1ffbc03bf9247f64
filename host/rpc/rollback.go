package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/fitsum"
	"github.com/hostd/hostd/host/rpc/rollback"
	"github.com/hostd/hostd/host/rpc/rollout"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// touchedShards is how many shards are checked concurrently before a
	// rollback, and touchedBudget the time for each shard.
	touchedShards = 16
	touchedBudget = 10 * time.Second
)

// Rollback makes the previous module of an entity type serve it again.
func (s *moduleService) Rollback(ctx context.Context, r *connect.Request[modulev1.RollbackRequest]) (*connect.Response[modulev1.RollbackResponse], error) {
	if err := sharding.ValidateEntityType(r.Msg.GetEntityType()); err != nil {
		return nil, status.Public(s.log, err)
	}
	looks := rollback.Looks{Force: r.Msg.GetForce(), Touched: func(ctx context.Context, t modules.RollbackType) (*modulev1.FitResponse, error) {
		return s.touched(ctx, modules.FitQuery{EntityType: t.Name, Digest: t.Digest, Budget: touchedBudget, WrittenNotBy: t.Before, First: t.First, Fence: t.Fence, Truncated: true})
	}}
	back := modules.TakeBack{EntityType: r.Msg.GetEntityType(), Revision: r.Msg.GetRevision(), By: authorize.Caller(ctx), Stored: s.stored, Allow: s.owners.allow()}
	if s.fits != nil {
		back.Check = looks.Check
		back.Truncated = modules.Truncated{Prove: true, Force: r.Msg.GetForce(), Warn: func(text string) { looks.Remarks = append(looks.Remarks, text) }}
	}
	now, err := s.modules.Rollback(ctx, back)
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&modulev1.RollbackResponse{
		Digest: now.Digest.String(), Revision: now.Revision, EntityTypes: now.Types, Remarks: looks.Remarks,
	}), nil
}

// touched checks all shards, touchedShards at a time, each on the node that
// leads it. A paced check, and one for presence only, ends as soon as one shard
// determines the result.
func (s *moduleService) touched(ctx context.Context, q modules.FitQuery) (*modulev1.FitResponse, error) {
	looking, enough := context.WithCancel(ctx)
	defer enough()
	sum := fitsum.Each(looking, s.verify.entities.Shards(), touchedShards, func(ctx context.Context, shard sharding.ShardID) (found *modulev1.FitResponse, err error) {
		one := q
		one.Shard = shard
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case q.Paced:
			found, err = s.fitAll(ctx, one)
		default:
			found, err = s.fitShard(ctx, one)
		}
		if q.Paced && misfits(q, found) || q.PresenceOnly && found.GetEntities() > 0 {
			enough()
		}
		return found, err
	}, func(shard sharding.ShardID, err error) {
		if looking.Err() != nil {
			return
		}
		s.log.Warn("entities that were written since a module served are not looked at in a shard", "entity_type", q.EntityType, "shard_id", shard, "error", err)
	})
	return sum, ctx.Err()
}

// Touched checks all shards for entities that modules other than q.WrittenNotBy
// have written and on which the module of q fails.
func (s *Server) Touched(ctx context.Context, q modules.FitQuery) (*modulev1.FitResponse, error) {
	return s.modules.touched(ctx, q)
}

// begin starts a rollout, in which a module serves a part of a type's entities.
func (s *moduleService) begin(ctx context.Context, r *modulev1.ActivateRequest, digest journal.Digest) (*connect.Response[modulev1.ActivateResponse], error) {
	if s.rollouts.Rollouts == nil {
		return nil, status.Public(s.log, request.ErrUnsupported)
	}
	if r.GetLimits() != nil {
		return nil, status.Public(s.log, status.Argument("limits are of all of a type: change them before, or after"))
	}
	plan, err := rollout.PlanOf(r.GetRollout())
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	out := &modulev1.ActivateResponse{}
	begin := modules.RolloutBegin{EntityType: r.GetEntityType(), Digest: digest, RolloutPlan: plan, By: authorize.Caller(ctx), Allow: s.rollouts.Allow}
	begin.Check = func(ctx context.Context, entityType string) (string, error) {
		fitted, err := s.fitted(ctx, entityType, digest, r.GetForce(), r.GetAcceptDifferences())
		out.Remarks = append(out.Remarks, fitted.remarks...)
		return fitted.forcedBy, err
	}
	begin.Truncated = modules.Truncated{Prove: s.fits != nil, Accept: r.GetAcceptDifferences(), Force: r.GetForce(), Warn: func(text string) { out.Remarks = append(out.Remarks, text) }}
	if out.Revision, err = s.rollouts.Rollouts.Begin(ctx, begin); err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(out), nil
}

// GetRollout returns the state of a type's rollout.
func (s *moduleService) GetRollout(ctx context.Context, r *connect.Request[modulev1.GetRolloutRequest]) (*connect.Response[modulev1.GetRolloutResponse], error) {
	out, err := s.rollouts.Get(ctx, r.Msg)
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(out), nil
}

// ChangeRollout promotes, pauses, resumes or aborts a type's rollout.
func (s *moduleService) ChangeRollout(ctx context.Context, r *connect.Request[modulev1.ChangeRolloutRequest]) (*connect.Response[modulev1.ChangeRolloutResponse], error) {
	out, err := s.rollouts.Change(ctx, r.Msg)
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(out), nil
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
