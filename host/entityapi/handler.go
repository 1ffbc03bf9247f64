package entityapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/codec"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/quota"

	"github.com/hostd/hostd/host/entityapi/subscription"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Options configure the EntityService of a node. If States, Records, Pending,
// DeadLetters, EventOrder or Load is nil, the calls that need it are
// unimplemented. Auth, Quotas and Registerer may be nil too.
type Options struct {
	Runtime   Runtime
	Types     Types
	Entities  Entities
	Histories subscription.Histories
	// Readers read whole shards and upcast events.
	subscription.Readers
	States      States
	Records     recordHistories
	Pending     pending
	DeadLetters deadLetters
	Load        Load
	View        clusterapi.View

	Self       sharding.NodeID
	Admin      bool // callers may change objects that have no owner
	Proxy      *leaderproxy.Proxy
	Streams    *admission.Streams
	Waiting    *admission.Waiting
	Arrivals   admission.Arrivals
	Deadline   admission.Deadlines
	Auth       *authorize.Authorizer // if nil, every caller may do everything
	Quotas     *quota.Quotas
	Log        *slog.Logger
	Registerer prometheus.Registerer
	// MaxInFlight limits the unanswered commands of a stream, and MaxBytes their
	// bytes.
	MaxInFlight int
	MaxBytes    int64
}

// Handler is the EntityService of a node, except SendCommandStream. It is safe for
// concurrent use.
type Handler struct{ *handler }

// handler implements the EntityService, except SendCommandStream.
type handler struct {
	Options
	calls   *calls
	ids     *commandIDs
	events  *subscription.Service
	nodes   memberLister
	streams *sendStreams
}

var _ entityv1connect.EntityServiceHandler = Handler{}

// unserved answers calls for which Options lacks what they need, and
// SendCommandStream. It is not embedded, because embedding would hide that a
// method is missing.
var unserved entityv1connect.UnimplementedEntityServiceHandler

// SendCommandStream has a handler of its own: see SendStreamHandler.
func (s *handler) SendCommandStream(ctx context.Context, stream *connect.BidiStream[entityv1.SendCommandStreamRequest, entityv1.SendCommandStreamResponse]) error {
	return unserved.SendCommandStream(ctx, stream)
}

// NewHandler makes the EntityService of a node. It starts nothing.
func NewHandler(o Options) Handler {
	s := &handler{Options: o, ids: new(commandIDs), nodes: clusterapi.Nodes{View: o.View}, calls: &calls{Runtime: o.Runtime, Waiting: o.Waiting, Arrivals: o.Arrivals, Deadline: o.Deadline, Quotas: o.Quotas}}
	s.events = subscription.New(subscription.Options{
		Types: o.Types, Sharding: o.Entities, Histories: o.Histories, Readers: o.Readers,
		Proxy: o.Proxy, Streams: o.Streams, Log: o.Log, Registerer: o.Registerer,
	})
	s.streams = newSendStreams(s)
	return Handler{s}
}

// SendStreamHandler makes the handler of SendCommandStream, which has its own codecs.
func (s *handler) SendStreamHandler(opts ...connect.HandlerOption) (path string, h http.Handler) {
	path = entityv1connect.EntityServiceSendCommandStreamProcedure
	return path, connect.NewBidiStreamHandler(path, s.streams.Serve, connect.WithHandlerOptions(opts...),
		connect.WithCodec(wire.Codec{}), connect.WithCodec(codec.Stream{As: "json"}), connect.WithCodec(codec.Stream{As: "json; charset=utf-8"}))
}

// runningNode returns the node that ran a request.
func (s *handler) runningNode(node sharding.NodeID) string { return string(cmp.Or(node, s.Self)) }

// ReadEvents streams an entity's events.
func (s *handler) ReadEvents(ctx context.Context, r *connect.Request[entityv1.ReadEventsRequest], stream *connect.ServerStream[entityv1.ReadEventsResponse]) error {
	return s.events.ReadEvents(ctx, r, stream)
}

// SubscribeEvents streams the events of a type.
func (s *handler) SubscribeEvents(ctx context.Context, r *connect.Request[entityv1.SubscribeEventsRequest], stream *connect.ServerStream[entityv1.SubscribeEventsResponse]) error {
	if s.EventOrder == nil {
		return unserved.SubscribeEvents(ctx, r, stream)
	}
	return s.events.SubscribeEvents(ctx, r, stream)
}

// SendCommand runs one command.
func (s *handler) SendCommand(ctx context.Context, r *connect.Request[entityv1.SendCommandRequest]) (*connect.Response[entityv1.SendCommandResponse], error) {
	m := r.Msg
	id := sharding.EntityID{Type: m.GetEntityType(), ID: m.GetEntityId()}
	if err := checkName("command", m.GetCommand()); err != nil {
		return nil, status.Public(s.Log, err)
	}
	if err := checkCommandID(m.GetCommandId()); err != nil {
		return nil, status.Public(s.Log, err)
	}
	age := firstAge(m, formerSendAge)
	if err := checkRetry(m.GetCommandId(), age); err != nil {
		return nil, status.Public(s.Log, err)
	}
	expected, err := expectation(m.ExpectedSequence != nil, m.GetExpectedSequence())
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	kind, payload, err := admit(ctx, s.Types, id, sendPayload(m))
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	m.Payload = nil // the size of the converted payload is charged with the request
	admission.ChargeOf(ctx).Settle()
	res, err := s.calls.Run(ctx, func(req *request.Request) {
		req.Kind = request.Command
		req.Entity = id
		req.Name = m.GetCommand()
		req.Payload = payload
		req.ExpectedSequence = expected
		req.Principal, req.Roles = leaderproxy.Caller(ctx), s.Auth.Revision()
		req.ID = journal.CommandID(m.GetCommandId())
		if req.ID == "" {
			req.ID, req.ServerID = s.ids.Next(), true
		}
		setFirstAttempt(req, age)
	})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	out := &entityv1.SendCommandResponse{
		Sequence:   uint64(res.Sequence),
		EventCount: uint32(res.EventCount),
		Duplicate:  res.Duplicate,
		NodeId:     s.runningNode(res.Node),
		Fuel:       res.Fuel,
	}
	if v, data := codec.Render(kind, res.Payload); v != nil {
		out.Payload = &entityv1.SendCommandResponse_Json{Json: v}
	} else if len(data) > 0 {
		out.Payload = &entityv1.SendCommandResponse_Data{Data: data}
	}
	return connect.NewResponse(out), nil
}

// QueryEntity runs one query.
func (s *handler) QueryEntity(ctx context.Context, r *connect.Request[entityv1.QueryEntityRequest]) (*connect.Response[entityv1.QueryEntityResponse], error) {
	m := r.Msg
	id := sharding.EntityID{Type: m.GetEntityType(), ID: m.GetEntityId()}
	if err := checkName("query", m.GetQuery()); err != nil {
		return nil, status.Public(s.Log, err)
	}
	how := request.Query
	switch m.GetConsistency() {
	case entityv1.Consistency_LINEARIZABLE:
	case entityv1.Consistency_STALE:
		how = request.StaleQuery
	default:
		return nil, status.Public(s.Log, status.Argument("the consistency must be LINEARIZABLE or STALE"))
	}
	kind, payload, err := admit(ctx, s.Types, id, queryPayload(m))
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	m.Payload = nil // charged with the request, as in Send
	admission.ChargeOf(ctx).Settle()
	res, err := s.calls.Run(ctx, func(req *request.Request) {
		req.Kind = how
		req.Entity = id
		req.Name = m.GetQuery()
		req.Payload = payload
		req.ExpectedSequence = request.NoExpectation
		req.Principal, req.Roles = leaderproxy.Caller(ctx), s.Auth.Revision()
	})
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	out := &entityv1.QueryEntityResponse{Sequence: uint64(res.Sequence), Fuel: res.Fuel}
	if v, data := codec.Render(kind, res.Payload); v != nil {
		out.Payload = &entityv1.QueryEntityResponse_Json{Json: v}
	} else if len(data) > 0 {
		out.Payload = &entityv1.QueryEntityResponse_Data{Data: data}
	}
	return connect.NewResponse(out), nil
}

func sendPayload(m *entityv1.SendCommandRequest) payloadGiven {
	switch p := m.GetPayload().(type) {
	case *entityv1.SendCommandRequest_Json:
		return payloadGiven{Kind: wire.JSONPayload, JSON: p.Json}
	case *entityv1.SendCommandRequest_Data:
		return payloadGiven{Kind: wire.DataPayload, Data: p.Data}
	}
	return payloadGiven{}
}

func queryPayload(m *entityv1.QueryEntityRequest) payloadGiven {
	switch p := m.GetPayload().(type) {
	case *entityv1.QueryEntityRequest_Json:
		return payloadGiven{Kind: wire.JSONPayload, JSON: p.Json}
	case *entityv1.QueryEntityRequest_Data:
		return payloadGiven{Kind: wire.DataPayload, Data: p.Data}
	}
	return payloadGiven{}
}
