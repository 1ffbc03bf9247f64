package entityapi

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/former"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// The fields in which requests of the previous release have the age of the first
// attempt, in milliseconds.
const (
	formerSendAge   protowire.Number = 8
	formerSkipAge   protowire.Number = 5
	formerDeleteAge protowire.Number = 4
)

// ClearFaults releases an entity from quarantine.
func (s *handler) ClearFaults(ctx context.Context, r *connect.Request[entityv1.ClearFaultsRequest]) (*connect.Response[entityv1.ClearFaultsResponse], error) {
	id := sharding.EntityID{Type: r.Msg.GetEntityType(), ID: r.Msg.GetEntityId()}
	if _, err := s.stateType(ctx, id); err != nil {
		return nil, status.Public(s.Log, err)
	}
	_, err := leaderproxy.Do(ctx, s.Proxy, s.Entities.ShardOf(id),
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.ClearFaultsResponse], error) {
			if leader != nil {
				return leader.ClearFaults(ctx, connect.NewRequest(r.Msg))
			}
			return connect.NewResponse(&entityv1.ClearFaultsResponse{}), s.States.ClearFaults(ctx, id)
		})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(&entityv1.ClearFaultsResponse{}), nil
}

// SkipTimer cancels a timer for an operator. Like Delete, it fixes the command
// id before the first attempt, so that a retry cannot cancel a timer that was
// set later.
func (s *handler) SkipTimer(ctx context.Context, r *connect.Request[entityv1.SkipTimerRequest]) (*connect.Response[entityv1.SkipTimerResponse], error) {
	id := sharding.EntityID{Type: r.Msg.GetEntityType(), ID: r.Msg.GetEntityId()}
	if err := checkName("timer", r.Msg.GetTimer()); err != nil {
		return nil, status.Public(s.Log, err)
	}
	command, tried, err := s.adminRequest(r.Msg.GetCommandId(), firstAge(r.Msg, formerSkipAge))
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	if _, err := s.stateType(ctx, id); err != nil {
		return nil, status.Public(s.Log, err)
	}
	res, err := leaderproxy.Do(ctx, s.Proxy, s.Entities.ShardOf(id),
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.SkipTimerResponse], error) {
			if leader != nil {
				began := time.Now()
				m := &entityv1.SkipTimerRequest{EntityType: id.Type, EntityId: id.ID, Timer: r.Msg.GetTimer(), CommandId: string(command)}
				m.FirstAttemptAge = tried.age(m, formerSkipAge)
				res, err := leader.SkipTimer(ctx, connect.NewRequest(m))
				tried.recordOutcome(began, err)
				return res, err
			}
			sequence, err := s.States.SkipTimer(ctx, id, r.Msg.GetTimer(), command, tried.first)
			return connect.NewResponse(&entityv1.SkipTimerResponse{Sequence: uint64(sequence)}), err
		})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(res.Msg), nil
}

// DeleteEntity deletes an entity.
func (s *handler) DeleteEntity(ctx context.Context, r *connect.Request[entityv1.DeleteEntityRequest]) (*connect.Response[entityv1.DeleteEntityResponse], error) {
	id := sharding.EntityID{Type: r.Msg.GetEntityType(), ID: r.Msg.GetEntityId()}
	command, tried, err := s.adminRequest(r.Msg.GetCommandId(), firstAge(r.Msg, formerDeleteAge))
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	if _, err := s.stateType(ctx, id); err != nil {
		return nil, status.Public(s.Log, err)
	}
	res, err := leaderproxy.Do(ctx, s.Proxy, s.Entities.ShardOf(id),
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.DeleteEntityResponse], error) {
			if leader != nil {
				began := time.Now()
				m := &entityv1.DeleteEntityRequest{EntityType: id.Type, EntityId: id.ID, CommandId: string(command)}
				m.FirstAttemptAge = tried.age(m, formerDeleteAge)
				res, err := leader.DeleteEntity(ctx, connect.NewRequest(m))
				tried.recordOutcome(began, err)
				return res, err
			}
			sequence, err := s.States.Delete(ctx, id, command, tried.first)
			return connect.NewResponse(&entityv1.DeleteEntityResponse{Sequence: uint64(sequence)}), err
		})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(res.Msg), nil
}

// adminRequest validates the command id of an operator's request, and makes one
// if it is missing, before the first attempt.
func (s *handler) adminRequest(commandID string, age time.Duration) (journal.CommandID, attempts, error) {
	if err := checkCommandID(commandID); err != nil {
		return "", attempts{}, err
	}
	if err := checkRetry(commandID, age); err != nil {
		return "", attempts{}, err
	}
	command := journal.CommandID(commandID)
	if command == "" {
		command = s.ids.Next()
	}
	return command, attemptsSince(age), nil
}

// attempts records the first attempt of an operator's request that had an
// unknown outcome. first is the time of that attempt, or zero if there was
// none.
type attempts struct{ first time.Time }

func attemptsSince(age time.Duration) (a attempts) {
	if age > 0 {
		a.first = time.Now().Add(-limitAge(age))
	}
	return a
}

// age returns how long ago the first attempt was, for a request to a different
// node. It adds the former field to the request, because that node may run the
// previous release, to which a retry without an age is a new command.
func (a *attempts) age(m proto.Message, formerField protowire.Number) *durationpb.Duration {
	if a.first.IsZero() {
		return nil
	}
	age := max(time.Since(a.first)+time.Millisecond-1, time.Millisecond).Truncate(time.Millisecond)
	former.SetNumber(m, formerField, uint64(age.Milliseconds()))
	return durationpb.New(age)
}

// recordOutcome records the outcome of an attempt at a different node. An attempt
// without a response may have taken effect.
func (a *attempts) recordOutcome(began time.Time, err error) {
	if err != nil && a.first.IsZero() && !connect.IsWireError(err) {
		a.first = began
	}
}

const (
	// maxCleared limits the entities that one call clears.
	maxCleared = 10_000
	// clearPage is how many entities are listed at a time.
	clearPage = 500
)

// ClearTypeFaults releases the quarantined entities of a type, one shard after
// the other, each on the node that leads it. If it fails, some entities may
// already be released.
func (s *handler) ClearTypeFaults(ctx context.Context, r *connect.Request[entityv1.ClearTypeFaultsRequest]) (*connect.Response[entityv1.ClearTypeFaultsResponse], error) {
	if s.States == nil {
		return unserved.ClearTypeFaults(ctx, r)
	}
	_, err := s.Types.Encoding(ctx, r.Msg.GetEntityType())
	only := r.Msg.GetShardId()
	switch {
	case err != nil:
	case only > s.Entities.Shards():
		err = status.Argument("the shard does not exist")
	case only == 0 && leaderproxy.FromPeer(ctx):
		err = status.Argument("a call from another node must name one shard")
	}
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	first, last := uint32(1), s.Entities.Shards()
	if only != 0 {
		first, last = only, only
	}
	limit := r.Msg.GetLimit()
	if limit == 0 || limit > maxCleared {
		limit = maxCleared
	}
	out := &entityv1.ClearTypeFaultsResponse{}
	for shard := first; shard <= last && !out.More; shard++ {
		m := &entityv1.ClearTypeFaultsRequest{EntityType: r.Msg.GetEntityType(), ShardId: shard, Limit: limit - out.GetCleared()}
		if m.Limit == 0 {
			out.More = true // the call has reached its limit, so there may be more
			break
		}
		res, err := leaderproxy.Do(ctx, s.Proxy, sharding.ShardID(shard),
			func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.ClearTypeFaultsResponse], error) {
				if leader != nil {
					return leader.ClearTypeFaults(ctx, connect.NewRequest(m))
				}
				return s.clearShard(ctx, m)
			})
		if err != nil {
			return nil, status.Public(s.Log, err)
		}
		out.Cleared += res.Msg.GetCleared()
		out.More = res.Msg.GetMore()
	}
	return connect.NewResponse(out), nil
}

// clearShard releases the quarantined entities of a shard that this node leads.
func (s *handler) clearShard(ctx context.Context, m *entityv1.ClearTypeFaultsRequest) (*connect.Response[entityv1.ClearTypeFaultsResponse], error) {
	out := &entityv1.ClearTypeFaultsResponse{}
	shard := sharding.ShardID(m.GetShardId())
	for q := (EntityQuery{Type: m.GetEntityType(), Status: "quarantined", Limit: clearPage}); ; {
		page, err := s.Entities.List(ctx, shard, q)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Entities {
			if out.Cleared == m.GetLimit() {
				out.More = true
				return connect.NewResponse(out), nil
			}
			if err := s.States.ClearFaults(ctx, sharding.EntityID{Type: q.Type, ID: e.ID}); err != nil {
				return nil, err
			}
			out.Cleared++
		}
		if q.After = page.Next; q.After == "" {
			return connect.NewResponse(out), nil
		}
	}
}
