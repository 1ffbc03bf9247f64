package rpc

import (
	"context"
	"time"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// ClearFaults lets a parked entity run again.
func (s *entityService) ClearFaults(ctx context.Context, r *connect.Request[entityv1.ClearFaultsRequest]) (*connect.Response[entityv1.ClearFaultsResponse], error) {
	id := sharding.EntityID{Type: r.Msg.GetEntityType(), ID: r.Msg.GetEntityId()}
	if _, err := s.stateType(ctx, id); err != nil {
		return nil, publicError(s.log, err)
	}
	_, err := atLeader(ctx, &s.elsewhere, s.deps.Entities.ShardOf(id),
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.ClearFaultsResponse], error) {
			if leader != nil {
				return leader.ClearFaults(ctx, connect.NewRequest(r.Msg))
			}
			return connect.NewResponse(&entityv1.ClearFaultsResponse{}), s.deps.States.ClearFaults(ctx, id)
		})
	if err != nil {
		return nil, publicError(s.log, err)
	}
	return connect.NewResponse(&entityv1.ClearFaultsResponse{}), nil
}

// SkipTimer cancels a timer in a person's name. Like a deletion it has its
// command id before the first attempt, so that no later one ends another timer.
func (s *entityService) SkipTimer(ctx context.Context, r *connect.Request[entityv1.SkipTimerRequest]) (*connect.Response[entityv1.SkipTimerResponse], error) {
	id := sharding.EntityID{Type: r.Msg.GetEntityType(), ID: r.Msg.GetEntityId()}
	if err := checkName("timer", r.Msg.GetTimer()); err != nil {
		return nil, publicError(s.log, err)
	}
	command, tried, err := s.act(r.Msg.GetCommandId(), r.Msg.GetFirstAttemptAgeMs())
	if err != nil {
		return nil, publicError(s.log, err)
	}
	if _, err := s.stateType(ctx, id); err != nil {
		return nil, publicError(s.log, err)
	}
	res, err := atLeader(ctx, &s.elsewhere, s.deps.Entities.ShardOf(id),
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.SkipTimerResponse], error) {
			if leader != nil {
				began := time.Now()
				res, err := leader.SkipTimer(ctx, connect.NewRequest(&entityv1.SkipTimerRequest{
					EntityType: id.Type, EntityId: id.ID, Timer: r.Msg.GetTimer(), CommandId: string(command), FirstAttemptAgeMs: tried.ageMs(),
				}))
				tried.ended(began, err)
				return res, err
			}
			sequence, err := s.deps.States.SkipTimer(ctx, id, r.Msg.GetTimer(), command, tried.first)
			return connect.NewResponse(&entityv1.SkipTimerResponse{Sequence: uint64(sequence)}), err
		})
	if err != nil {
		return nil, publicError(s.log, err)
	}
	return connect.NewResponse(res.Msg), nil
}

// Delete ends an entity's life.
func (s *entityService) Delete(ctx context.Context, r *connect.Request[entityv1.DeleteRequest]) (*connect.Response[entityv1.DeleteResponse], error) {
	id := sharding.EntityID{Type: r.Msg.GetEntityType(), ID: r.Msg.GetEntityId()}
	command, tried, err := s.act(r.Msg.GetCommandId(), r.Msg.GetFirstAttemptAgeMs())
	if err != nil {
		return nil, publicError(s.log, err)
	}
	if _, err := s.stateType(ctx, id); err != nil {
		return nil, publicError(s.log, err)
	}
	res, err := atLeader(ctx, &s.elsewhere, s.deps.Entities.ShardOf(id),
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.DeleteResponse], error) {
			if leader != nil {
				began := time.Now()
				res, err := leader.Delete(ctx, connect.NewRequest(&entityv1.DeleteRequest{
					EntityType: id.Type, EntityId: id.ID, CommandId: string(command), FirstAttemptAgeMs: tried.ageMs(),
				}))
				tried.ended(began, err)
				return res, err
			}
			sequence, err := s.deps.States.Delete(ctx, id, command, tried.first)
			return connect.NewResponse(&entityv1.DeleteResponse{Sequence: uint64(sequence)}), err
		})
	if err != nil {
		return nil, publicError(s.log, err)
	}
	return connect.NewResponse(res.Msg), nil
}

// act names a person's request before its first attempt.
func (s *entityService) act(commandID string, firstAgeMs uint64) (journal.CommandID, attempts, error) {
	if err := checkCommandID(commandID); err != nil {
		return "", attempts{}, err
	}
	if err := checkRetry(commandID, firstAgeMs); err != nil {
		return "", attempts{}, err
	}
	command := journal.CommandID(commandID)
	if command == "" {
		command = s.ids.next()
	}
	return command, attemptsSince(firstAgeMs), nil
}
