package rpc

import (
	"context"
	"log/slog"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/codec"
	"github.com/hostd/hostd/host/rpc/command"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/rpc/pending"
	"github.com/hostd/hostd/host/rpc/records"
	"github.com/hostd/hostd/host/rpc/subscription"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// entityService answers the EntityService. Methods it does not have are
// unimplemented.
type entityService struct {
	entityv1connect.UnimplementedEntityServiceHandler
	deps      Deps
	encodings command.Types
	calls     *command.Calls
	ids       *command.IDs
	nodeID    string
	admin     bool // callers may change what they do not own
	log       *slog.Logger
	guard     *admission.Streams
	count     *metrics

	roles  *authorize.Authorizer // nil: everybody may do everything
	proxy  *leaderproxy.Proxy
	events *subscription.Service
	// record tells what commands did.
	record records.Service
	// pending tells what is to happen by itself.
	pending pending.Service
}

// ranBy names the node that ran a request.
func (s *entityService) ranBy(node sharding.NodeID) string {
	if node == "" {
		return s.nodeID
	}
	return string(node)
}

// ReadEvents streams an entity's events.
func (s *entityService) ReadEvents(ctx context.Context, r *connect.Request[entityv1.ReadEventsRequest], stream *connect.ServerStream[entityv1.ReadEventsResponse]) error {
	return s.events.ReadEvents(ctx, r, stream)
}

// ReadRecords returns what commands did to an entity.
func (s *entityService) ReadRecords(ctx context.Context, r *connect.Request[entityv1.ReadRecordsRequest]) (*connect.Response[entityv1.ReadRecordsResponse], error) {
	return s.record.ReadRecords(ctx, r)
}

// ListTimers returns timers.
func (s *entityService) ListTimers(ctx context.Context, r *connect.Request[entityv1.ListTimersRequest]) (*connect.Response[entityv1.ListTimersResponse], error) {
	return s.pending.ListTimers(ctx, r)
}

// ListSends returns sends that are on their way.
func (s *entityService) ListSends(ctx context.Context, r *connect.Request[entityv1.ListSendsRequest]) (*connect.Response[entityv1.ListSendsResponse], error) {
	return s.pending.ListSends(ctx, r)
}

// Subscribe streams the events of a type.
func (s *entityService) Subscribe(ctx context.Context, r *connect.Request[entityv1.SubscribeRequest], stream *connect.ServerStream[entityv1.SubscribeResponse]) error {
	if s.deps.EventOrder == nil {
		return s.UnimplementedEntityServiceHandler.Subscribe(ctx, r, stream)
	}
	return s.events.Subscribe(ctx, r, stream)
}

// Send runs one command.
func (s *entityService) Send(ctx context.Context, r *connect.Request[entityv1.SendRequest]) (*connect.Response[entityv1.SendResponse], error) {
	m := r.Msg
	id := sharding.EntityID{Type: m.GetEntityType(), ID: m.GetEntityId()}
	if err := command.CheckName("command", m.GetCommand()); err != nil {
		return nil, status.Public(s.log, err)
	}
	if err := command.CheckID(m.GetCommandId()); err != nil {
		return nil, status.Public(s.log, err)
	}
	if err := command.CheckRetry(m.GetCommandId(), m.GetFirstAttemptAgeMs()); err != nil {
		return nil, status.Public(s.log, err)
	}
	expected, err := command.Expectation(m.ExpectedSequence != nil, m.GetExpectedSequence())
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	kind, payload, err := command.Admit(ctx, s.encodings, id, sendPayload(m))
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	m.Payload = nil // the request is charged for its own form of it
	admission.ChargeOf(ctx).Settle()
	res, err := s.calls.Run(ctx, func(req *request.Request) {
		req.Kind = request.Command
		req.Entity = id
		req.Name = m.GetCommand()
		req.Payload = payload
		req.ExpectedSequence = expected
		req.Principal, req.Roles = leaderproxy.Caller(ctx), s.roles.Revision()
		req.ID = journal.CommandID(m.GetCommandId())
		if req.ID == "" {
			req.ID, req.ServerID = s.ids.Next(), true
		}
		command.TriedBefore(req, m.GetFirstAttemptAgeMs())
	})
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	out := &entityv1.SendResponse{
		Sequence:   uint64(res.Sequence),
		EventCount: uint32(res.EventCount),
		Duplicate:  res.Duplicate,
		NodeId:     s.ranBy(res.Node),
		Fuel:       res.Fuel,
	}
	if v, data := codec.Render(kind, res.Payload); v != nil {
		out.Payload = &entityv1.SendResponse_Json{Json: v}
	} else if len(data) > 0 {
		out.Payload = &entityv1.SendResponse_Data{Data: data}
	}
	return connect.NewResponse(out), nil
}

// Query answers one query.
func (s *entityService) Query(ctx context.Context, r *connect.Request[entityv1.QueryRequest]) (*connect.Response[entityv1.QueryResponse], error) {
	m := r.Msg
	id := sharding.EntityID{Type: m.GetEntityType(), ID: m.GetEntityId()}
	if err := command.CheckName("query", m.GetQuery()); err != nil {
		return nil, status.Public(s.log, err)
	}
	how := request.Query
	switch m.GetConsistency() {
	case entityv1.Consistency_LINEARIZABLE:
	case entityv1.Consistency_STALE:
		how = request.StaleQuery
	default:
		return nil, status.Public(s.log, status.Argument("the consistency is neither LINEARIZABLE nor STALE"))
	}
	kind, payload, err := command.Admit(ctx, s.encodings, id, queryPayload(m))
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	m.Payload = nil // as in Send
	admission.ChargeOf(ctx).Settle()
	res, err := s.calls.Run(ctx, func(req *request.Request) {
		req.Kind = how
		req.Entity = id
		req.Name = m.GetQuery()
		req.Payload = payload
		req.ExpectedSequence = request.NoExpectation
		req.Principal, req.Roles = leaderproxy.Caller(ctx), s.roles.Revision()
	})
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	out := &entityv1.QueryResponse{Sequence: uint64(res.Sequence), Fuel: res.Fuel}
	if v, data := codec.Render(kind, res.Payload); v != nil {
		out.Payload = &entityv1.QueryResponse_Json{Json: v}
	} else if len(data) > 0 {
		out.Payload = &entityv1.QueryResponse_Data{Data: data}
	}
	return connect.NewResponse(out), nil
}

func sendPayload(m *entityv1.SendRequest) command.Given {
	switch p := m.GetPayload().(type) {
	case *entityv1.SendRequest_Json:
		return command.Given{Kind: wire.JSONPayload, JSON: p.Json}
	case *entityv1.SendRequest_Data:
		return command.Given{Kind: wire.DataPayload, Data: p.Data}
	}
	return command.Given{}
}

func queryPayload(m *entityv1.QueryRequest) command.Given {
	switch p := m.GetPayload().(type) {
	case *entityv1.QueryRequest_Json:
		return command.Given{Kind: wire.JSONPayload, JSON: p.Json}
	case *entityv1.QueryRequest_Data:
		return command.Given{Kind: wire.DataPayload, Data: p.Data}
	}
	return command.Given{}
}
