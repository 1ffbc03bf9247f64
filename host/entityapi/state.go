package entityapi

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/edge/codec"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// States computes and changes the states of entities that this node leads.
type States interface {
	// Replay replays the entity and returns its state after the event with
	// sequence at, as the module that decided that event would snapshot it. If
	// at is nil, it returns the current state, as the module that serves the
	// type would snapshot it. It fails with a *status.FutureSequenceError if the
	// event does not exist yet, and with a *journal.TruncatedError or a
	// *status.StateTruncatedError if the event or the data it depends on was compacted
	// away.
	Replay(ctx context.Context, id sharding.EntityID, at *journal.Sequence) (replay.ReplayedState, error)
	// Passivate removes the entity from memory.
	Passivate(ctx context.Context, id sharding.EntityID) error
	// ClearFaults resets the fault count of the entity and releases it from
	// quarantine.
	ClearFaults(ctx context.Context, id sharding.EntityID) error
	// SkipTimer cancels a timer of the entity, whether it is set or not, and
	// returns the entity's sequence. tried is the time of the first attempt
	// under the command id, or zero for now. If the idempotency window does not
	// reach back to tried, an earlier attempt may have taken effect, so
	// SkipTimer fails with request.ErrForgotten.
	SkipTimer(ctx context.Context, id sharding.EntityID, timer string, command journal.CommandID, tried time.Time) (journal.Sequence, error)
	// Delete deletes the entity with a tombstone under the command id and
	// returns the tombstone's sequence. If the entity does not exist, it
	// returns the entity's sequence. tried is the same as for SkipTimer.
	Delete(ctx context.Context, id sharding.EntityID, command journal.CommandID, tried time.Time) (journal.Sequence, error)
}

// GetState returns the state of an entity.
func (s *handler) GetState(ctx context.Context, r *connect.Request[entityv1.GetStateRequest]) (*connect.Response[entityv1.GetStateResponse], error) {
	id := sharding.EntityID{Type: r.Msg.GetEntityType(), ID: r.Msg.GetEntityId()}
	kind, err := s.stateType(ctx, id)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	var at *journal.Sequence
	if r.Msg.AtSequence != nil {
		wanted := journal.Sequence(r.Msg.GetAtSequence())
		at = &wanted
	}
	res, err := leaderproxy.Do(ctx, s.Proxy, s.Entities.ShardOf(id),
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.GetStateResponse], error) {
			if leader != nil {
				return leader.GetState(ctx, connect.NewRequest(r.Msg))
			}
			folded, err := s.States.Replay(ctx, id, at)
			if err != nil {
				return nil, err
			}
			out := &entityv1.GetStateResponse{Sequence: uint64(folded.Sequence), ModuleDigest: folded.Module.String(), Deleted: folded.Deleted}
			if v, data := codec.Render(codec.AnswerKind(kind, wire.JSONPayload), folded.State); v != nil && proto.Size(v) <= page.MaxAnswer {
				out.Payload = &entityv1.GetStateResponse_Json{Json: v}
			} else if v != nil || len(data) > 0 { // returned as bytes, because a JSON value can be five times as large as its text
				out.Payload = &entityv1.GetStateResponse_Data{Data: folded.State}
			}
			return connect.NewResponse(out), nil
		})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(res.Msg), nil
}

// PassivateEntity removes an entity from memory.
func (s *handler) PassivateEntity(ctx context.Context, r *connect.Request[entityv1.PassivateEntityRequest]) (*connect.Response[entityv1.PassivateEntityResponse], error) {
	id := sharding.EntityID{Type: r.Msg.GetEntityType(), ID: r.Msg.GetEntityId()}
	if _, err := s.stateType(ctx, id); err != nil {
		return nil, status.Public(s.Log, err)
	}
	_, err := leaderproxy.Do(ctx, s.Proxy, s.Entities.ShardOf(id),
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.PassivateEntityResponse], error) {
			if leader != nil {
				return leader.PassivateEntity(ctx, connect.NewRequest(r.Msg))
			}
			return connect.NewResponse(&entityv1.PassivateEntityResponse{}), s.States.Passivate(ctx, id)
		})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(&entityv1.PassivateEntityResponse{}), nil
}

// stateType validates the id of an entity and returns the encoding of its type.
func (s *handler) stateType(ctx context.Context, id sharding.EntityID) (request.Encoding, error) {
	if err := id.Validate(); err != nil {
		return 0, err
	}
	if s.States == nil {
		return 0, request.ErrUnsupported
	}
	return s.Types.Encoding(ctx, id.Type)
}
