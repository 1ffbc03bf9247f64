package rpc

import (
	"context"
	"log/slog"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// entityService answers the EntityService. Methods it does not have are
// unimplemented.
type entityService struct {
	entityv1connect.UnimplementedEntityServiceHandler
	deps   Deps
	calls  calls
	ids    commandIDs
	nodeID string
	admin  bool // callers may change what they do not own
	log    *slog.Logger
	guard  *streamGuard
	count  *metrics

	elsewhere elsewhere
}

// ranBy names the node that ran a request.
func (s *entityService) ranBy(node sharding.NodeID) string {
	if node == "" {
		return s.nodeID
	}
	return string(node)
}

// Send runs one command.
func (s *entityService) Send(ctx context.Context, r *connect.Request[entityv1.SendRequest]) (*connect.Response[entityv1.SendResponse], error) {
	m := r.Msg
	id := sharding.EntityID{Type: m.GetEntityType(), ID: m.GetEntityId()}
	if err := checkName("command", m.GetCommand()); err != nil {
		return nil, publicError(s.log, err)
	}
	if err := checkCommandID(m.GetCommandId()); err != nil {
		return nil, publicError(s.log, err)
	}
	if err := checkRetry(m.GetCommandId(), m.GetFirstAttemptAgeMs()); err != nil {
		return nil, publicError(s.log, err)
	}
	expected, err := expectation(m.ExpectedSequence != nil, m.GetExpectedSequence())
	if err != nil {
		return nil, publicError(s.log, err)
	}
	kind, payload, err := s.admit(ctx, id, sendPayload(m))
	if err != nil {
		return nil, publicError(s.log, err)
	}
	res, err := s.calls.run(ctx, func(req *entity.Request) {
		req.Kind = entity.Command
		req.Entity = id
		req.Name = m.GetCommand()
		req.Payload = payload
		req.ExpectedSequence = expected
		req.ID = journal.CommandID(m.GetCommandId())
		if req.ID == "" {
			req.ID, req.ServerID = s.ids.next(), true
		}
		triedBefore(req, m.GetFirstAttemptAgeMs())
	})
	if err != nil {
		return nil, publicError(s.log, err)
	}
	out := &entityv1.SendResponse{
		Sequence:   uint64(res.Sequence),
		EventCount: uint32(res.EventCount),
		Duplicate:  res.Duplicate,
		NodeId:     s.ranBy(res.Node),
		Fuel:       res.Fuel,
	}
	if v, data := render(kind, res.Payload); v != nil {
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
	if err := checkName("query", m.GetQuery()); err != nil {
		return nil, publicError(s.log, err)
	}
	how := entity.Query
	switch m.GetConsistency() {
	case entityv1.Consistency_LINEARIZABLE:
	case entityv1.Consistency_STALE:
		how = entity.StaleQuery
	default:
		return nil, publicError(s.log, &argumentError{"the consistency is neither LINEARIZABLE nor STALE"})
	}
	kind, payload, err := s.admit(ctx, id, queryPayload(m))
	if err != nil {
		return nil, publicError(s.log, err)
	}
	res, err := s.calls.run(ctx, func(req *entity.Request) {
		req.Kind = how
		req.Entity = id
		req.Name = m.GetQuery()
		req.Payload = payload
		req.ExpectedSequence = entity.NoExpectation
	})
	if err != nil {
		return nil, publicError(s.log, err)
	}
	out := &entityv1.QueryResponse{Sequence: uint64(res.Sequence), Fuel: res.Fuel}
	if v, data := render(kind, res.Payload); v != nil {
		out.Payload = &entityv1.QueryResponse_Json{Json: v}
	} else if len(data) > 0 {
		out.Payload = &entityv1.QueryResponse_Data{Data: data}
	}
	return connect.NewResponse(out), nil
}

// given is a request's payload in the form it came.
type given struct {
	kind wire.PayloadKind
	json *structpb.Value
	data []byte
}

func sendPayload(m *entityv1.SendRequest) given {
	switch p := m.GetPayload().(type) {
	case *entityv1.SendRequest_Json:
		return given{kind: wire.JSONPayload, json: p.Json}
	case *entityv1.SendRequest_Data:
		return given{kind: wire.DataPayload, data: p.Data}
	}
	return given{}
}

func queryPayload(m *entityv1.QueryRequest) given {
	switch p := m.GetPayload().(type) {
	case *entityv1.QueryRequest_Json:
		return given{kind: wire.JSONPayload, json: p.Json}
	case *entityv1.QueryRequest_Data:
		return given{kind: wire.DataPayload, data: p.Data}
	}
	return given{}
}

// admit checks whom a request is for and what it brings. It returns the form
// that the answer takes and the payload as the module gets it.
func (s *entityService) admit(ctx context.Context, id sharding.EntityID, p given) (answer wire.PayloadKind, payload []byte, err error) {
	if err := id.Validate(); err != nil {
		return 0, nil, err
	}
	t, err := s.deps.Types.Lookup(ctx, id.Type)
	if err != nil {
		return 0, nil, err
	}
	switch p.kind {
	case wire.JSONPayload:
		payload, err = jsonPayload(t.Encoding, p.json)
	case wire.DataPayload:
		payload, err = dataPayload(t.Encoding, p.data)
	default:
		payload = emptyPayload(t.Encoding)
	}
	return answerKind(t.Encoding, p.kind), payload, err
}

// admitEncoded is admit for a payload as it lies in a stream's message: a JSON
// value is still encoded.
func (s *entityService) admitEncoded(ctx context.Context, id sharding.EntityID, kind wire.PayloadKind, encoded []byte) (answer wire.PayloadKind, payload []byte, err error) {
	if kind != wire.JSONPayload {
		return s.admit(ctx, id, given{kind: kind, data: encoded})
	}
	var v structpb.Value
	if err := proto.Unmarshal(encoded, &v); err != nil {
		return 0, nil, &argumentError{"the JSON value does not decode"}
	}
	return s.admit(ctx, id, given{kind: kind, json: &v})
}

// expectation turns an optional expected sequence into the runtime's form.
func expectation(given bool, sequence uint64) (int64, error) {
	if !given {
		return entity.NoExpectation, nil
	}
	if sequence > 1<<63-1 {
		return 0, &argumentError{"the expected sequence is above 2^63-1"}
	}
	return int64(sequence), nil
}
