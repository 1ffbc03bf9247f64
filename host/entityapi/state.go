package entityapi

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/codec"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/rpc/page"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// States folds and drops the states of entities that this node leads.
type States interface {
	// Fold returns the entity's state after the event with the sequence at, as the
	// module that decided it snapshots it; of nil the state now, as the module
	// that serves its type does. It fails with a *status.FutureSequenceError where
	// that event has not happened, and with a *journal.CutError or a
	// *status.StateCutError where it or what it stands on was cut.
	Fold(ctx context.Context, id sharding.EntityID, at *journal.Sequence) (replay.Folded, error)
	// Passivate lets the entity leave memory.
	Passivate(ctx context.Context, id sharding.EntityID) error
	// ClearFaults forgets the faults of the entity: it is not parked any more.
	ClearFaults(ctx context.Context, id sharding.EntityID) error
	// SkipTimer cancels a timer of the entity, set or not, and returns its
	// sequence. tried is when that was tried first under the command id, zero for
	// now: it fails with request.ErrForgotten where it may have been done since.
	SkipTimer(ctx context.Context, id sharding.EntityID, timer string, command journal.CommandID, tried time.Time) (journal.Sequence, error)
	// Delete ends the entity's life with a tombstone under the command id and
	// returns the tombstone's sequence; of one without a life its sequence. tried
	// is as of SkipTimer.
	Delete(ctx context.Context, id sharding.EntityID, command journal.CommandID, tried time.Time) (journal.Sequence, error)
}

// GetState folds an entity's state.
func (s *Handler) GetState(ctx context.Context, r *connect.Request[entityv1.GetStateRequest]) (*connect.Response[entityv1.GetStateResponse], error) {
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
			folded, err := s.States.Fold(ctx, id, at)
			if err != nil {
				return nil, err
			}
			out := &entityv1.GetStateResponse{Sequence: uint64(folded.Sequence), ModuleDigest: folded.Module.String(), Deleted: folded.Deleted}
			if v, data := codec.Render(codec.AnswerKind(kind, wire.JSONPayload), folded.State); v != nil && proto.Size(v) <= page.MaxAnswer {
				out.Payload = &entityv1.GetStateResponse_Json{Json: v}
			} else if v != nil || len(data) > 0 { // a JSON value may have five times the bytes of its text
				out.Payload = &entityv1.GetStateResponse_Data{Data: folded.State}
			}
			return connect.NewResponse(out), nil
		})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(res.Msg), nil
}

// Passivate lets an entity leave memory.
func (s *Handler) Passivate(ctx context.Context, r *connect.Request[entityv1.PassivateRequest]) (*connect.Response[entityv1.PassivateResponse], error) {
	id := sharding.EntityID{Type: r.Msg.GetEntityType(), ID: r.Msg.GetEntityId()}
	if _, err := s.stateType(ctx, id); err != nil {
		return nil, status.Public(s.Log, err)
	}
	_, err := leaderproxy.Do(ctx, s.Proxy, s.Entities.ShardOf(id),
		func(ctx context.Context, leader entityv1connect.EntityServiceClient) (*connect.Response[entityv1.PassivateResponse], error) {
			if leader != nil {
				return leader.Passivate(ctx, connect.NewRequest(r.Msg))
			}
			return connect.NewResponse(&entityv1.PassivateResponse{}), s.States.Passivate(ctx, id)
		})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(&entityv1.PassivateResponse{}), nil
}

// stateType checks the name of an entity whose state is asked for.
func (s *Handler) stateType(ctx context.Context, id sharding.EntityID) (request.Encoding, error) {
	if err := id.Validate(); err != nil {
		return 0, err
	}
	if s.States == nil {
		return 0, request.ErrUnsupported
	}
	return s.Types.Encoding(ctx, id.Type)
}
