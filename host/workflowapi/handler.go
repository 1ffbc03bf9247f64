package workflowapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/codec"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// Commands and the query of a run, and the codes with which it rejects commands.
// The SDKs define them.
const (
	commandStart     = "start"
	commandSignal    = "signal"
	commandCancel    = "cancel"
	commandTerminate = "terminate"
	queryState       = "state"

	codeAlreadyStarted = "already_started"
	codeNotStarted     = "not_started"
	codeEnded          = "ended"
)

// codeTooManyRuns is the code with which a shard rejects the start of a run beyond
// the setting max-open-runs.
const codeTooManyRuns = "too_many_runs"

// tooManyRunsRetry is the delay after which a rejected start may be repeated: some
// run of the shard must end first.
const tooManyRunsRetry = 5 * time.Second

// entities is the part of the EntityService that runs use.
type entities interface {
	SendCommand(context.Context, *connect.Request[entityv1.SendCommandRequest]) (*connect.Response[entityv1.SendCommandResponse], error)
	QueryEntity(context.Context, *connect.Request[entityv1.QueryEntityRequest]) (*connect.Response[entityv1.QueryEntityResponse], error)
	ReadRecords(context.Context, *connect.Request[entityv1.ReadRecordsRequest]) (*connect.Response[entityv1.ReadRecordsResponse], error)
}

// Runs reads the runs whose shards this node leads.
type Runs interface {
	// IsWorkflow reports whether the type is a workflow.
	IsWorkflow(entityType string) bool
	// Run describes a run. The description is not older than the call.
	Run(ctx context.Context, id sharding.EntityID) (entityapi.RunInfo, error)
	// WatchRun returns a channel that receives after the run has changed.
	WatchRun(id sharding.EntityID) (changed <-chan struct{}, cancel func())
	// ListRuns lists runs of one shard.
	ListRuns(ctx context.Context, shard sharding.ShardID, q entityapi.RunQuery) (entityapi.RunPage, error)
}

// Shards knows the shards of entities.
type Shards interface {
	Shards() uint32
	ShardOf(id sharding.EntityID) sharding.ShardID
	ShardOfPrefix(entityType, idPrefix string) (sharding.ShardID, bool)
}

// authorizer decides what callers may see.
type authorizer interface {
	// MayRead reports whether the caller has the right to read an entity.
	MayRead(ctx context.Context, entityType, entityID string) bool
	// MayQuery reports whether the caller has the right to send an entity a
	// query.
	MayQuery(ctx context.Context, entityType, entityID, query string) bool
}

// quotas limit callers.
type quotas interface {
	// Stream counts an open stream of the caller until leave is called. It
	// returns an error if the caller has as many as its quota allows.
	Stream(ctx context.Context) (leave func(), err error)
}

// Options configure the WorkflowService of a node. All are required, except that
// without Runs all calls are unimplemented.
type Options struct {
	Entities entities
	Runs     Runs
	Shards   Shards
	Types    entityapi.Types
	Proxy    *leaderproxy.Proxy
	Streams  *admission.Streams
	Quotas   quotas
	Auth     authorizer
	Log      *slog.Logger
}

// Handler is the WorkflowService of a node. It is safe for concurrent use.
type Handler struct {
	Options
}

// NewHandler makes the WorkflowService of a node. It starts nothing.
func NewHandler(o Options) *Handler { return &Handler{Options: o} }

// StartWorkflow starts a run, and waits for its end if that is requested.
func (h *Handler) StartWorkflow(ctx context.Context, r *connect.Request[workflowv1.StartWorkflowRequest]) (*connect.Response[workflowv1.StartWorkflowResponse], error) {
	m := r.Msg
	id := sharding.EntityID{Type: m.GetEntityType(), ID: m.GetEntityId()}
	if err := h.check(ctx, id.Type); err != nil {
		return nil, status.Public(h.Log, err)
	}
	start := newSend(m, commandStart)
	switch input := m.GetInput().(type) {
	case *workflowv1.StartWorkflowRequest_Json:
		start.Payload = &entityv1.SendCommandRequest_Json{Json: input.Json}
	case *workflowv1.StartWorkflowRequest_Data:
		start.Payload = &entityv1.SendCommandRequest_Data{Data: input.Data}
	}
	if !h.Auth.MayQuery(ctx, id.Type, id.ID, queryState) {
		return h.startUnseen(ctx, start)
	}
	wait := m.GetWait().AsDuration()
	leave, err := h.admit(ctx, wait)
	if err != nil {
		return nil, status.Public(h.Log, err)
	}
	defer leave()
	// The command is sent through this node, which finds the leader, and not with
	// the call of the leader, because the caller's quotas count on the node that
	// was called. SendCommand ends the call's charge, so the wait must not keep the
	// input.
	if err := h.send(ctx, start); err != nil {
		return nil, status.Public(h.Log, err)
	}
	start.Payload, m.Input = nil, nil
	run, err := h.wait(ctx, id, wait, func(ctx context.Context, leader workflowv1connect.WorkflowServiceClient, left time.Duration) (*workflowv1.Run, error) {
		return h.get(ctx, id, leader, left)
	})
	if err != nil {
		return nil, status.Public(h.Log, err)
	}
	return connect.NewResponse(&workflowv1.StartWorkflowResponse{Run: run}), nil
}

// startUnseen starts a run for a caller who may not query it, and who therefore
// gets no more than the run's status, without waiting.
func (h *Handler) startUnseen(ctx context.Context, start *entityv1.SendCommandRequest) (*connect.Response[workflowv1.StartWorkflowResponse], error) {
	run := &workflowv1.Run{EntityType: start.GetEntityType(), EntityId: start.GetEntityId()}
	res, err := h.Entities.SendCommand(ctx, connect.NewRequest(start))
	if err != nil {
		return nil, status.Public(h.Log, asRunError(err))
	}
	switch res.Msg.GetJson().GetStructValue().GetFields()["status"].GetStringValue() {
	case "running":
		run.Status = workflowv1.RunStatus_RUNNING
	case "completed":
		run.Status = workflowv1.RunStatus_COMPLETED
	case "failed":
		run.Status = workflowv1.RunStatus_FAILED
	}
	return connect.NewResponse(&workflowv1.StartWorkflowResponse{Run: run}), nil
}

// SignalWorkflow sends a signal to a run.
func (h *Handler) SignalWorkflow(ctx context.Context, r *connect.Request[workflowv1.SignalWorkflowRequest]) (*connect.Response[workflowv1.SignalWorkflowResponse], error) {
	m := r.Msg
	signal := struct {
		Name  string          `json:"name"`
		Value json.RawMessage `json:"value,omitempty"`
	}{Name: m.GetName()}
	switch p := m.GetValue().(type) {
	case *workflowv1.SignalWorkflowRequest_Json:
		text, err := codec.FromJSON(request.JSON, p.Json)
		if err != nil {
			return nil, status.Public(h.Log, err)
		}
		signal.Value = text
	case *workflowv1.SignalWorkflowRequest_Data:
		if len(p.Data) > 0 && !json.Valid(p.Data) {
			return nil, status.Public(h.Log, status.Argument("the value of the signal is not JSON"))
		}
		signal.Value = p.Data
	}
	payload, err := json.Marshal(signal)
	if err == nil {
		c := newSend(m, commandSignal)
		c.Payload = &entityv1.SendCommandRequest_Data{Data: payload}
		err = h.sendChecked(ctx, c)
	}
	if err != nil {
		return nil, status.Public(h.Log, err)
	}
	return connect.NewResponse(&workflowv1.SignalWorkflowResponse{}), nil
}

// CancelWorkflow cancels a run.
func (h *Handler) CancelWorkflow(ctx context.Context, r *connect.Request[workflowv1.CancelWorkflowRequest]) (*connect.Response[workflowv1.CancelWorkflowResponse], error) {
	if err := h.sendChecked(ctx, newSend(r.Msg, commandCancel)); err != nil {
		return nil, status.Public(h.Log, err)
	}
	return connect.NewResponse(&workflowv1.CancelWorkflowResponse{}), nil
}

// TerminateWorkflow terminates a run.
func (h *Handler) TerminateWorkflow(ctx context.Context, r *connect.Request[workflowv1.TerminateWorkflowRequest]) (*connect.Response[workflowv1.TerminateWorkflowResponse], error) {
	if err := h.sendChecked(ctx, newSend(r.Msg, commandTerminate)); err != nil {
		return nil, status.Public(h.Log, err)
	}
	return connect.NewResponse(&workflowv1.TerminateWorkflowResponse{}), nil
}

// QueryWorkflow sends a query to a run.
func (h *Handler) QueryWorkflow(ctx context.Context, r *connect.Request[workflowv1.QueryWorkflowRequest]) (*connect.Response[workflowv1.QueryWorkflowResponse], error) {
	m := r.Msg
	if err := h.check(ctx, m.GetEntityType()); err != nil {
		return nil, status.Public(h.Log, err)
	}
	q := &entityv1.QueryEntityRequest{EntityType: m.GetEntityType(), EntityId: m.GetEntityId(), Query: m.GetQuery()}
	if q.Query == "" {
		q.Query = queryState
	}
	if m.GetPayload() != nil {
		q.Payload = &entityv1.QueryEntityRequest_Json{Json: m.GetPayload()}
	}
	res, err := h.Entities.QueryEntity(ctx, connect.NewRequest(q))
	if err != nil {
		return nil, status.Public(h.Log, asRunError(err))
	}
	return connect.NewResponse(&workflowv1.QueryWorkflowResponse{Reply: res.Msg.GetJson(), Sequence: res.Msg.GetSequence()}), nil
}

// aboutRun is a request that sends a command to a run.
type aboutRun interface {
	GetEntityType() string
	GetEntityId() string
	GetCommandId() string
	GetFirstAttemptAge() *durationpb.Duration
}

// newSend returns a command for the run of a request.
func newSend(m aboutRun, name string) *entityv1.SendCommandRequest {
	return &entityv1.SendCommandRequest{
		EntityType: m.GetEntityType(), EntityId: m.GetEntityId(), Command: name,
		CommandId: m.GetCommandId(), FirstAttemptAge: m.GetFirstAttemptAge(),
	}
}

// sendChecked sends a command to a run, after checking that its type is a
// workflow.
func (h *Handler) sendChecked(ctx context.Context, c *entityv1.SendCommandRequest) error {
	if err := h.check(ctx, c.GetEntityType()); err != nil {
		return err
	}
	return h.send(ctx, c)
}

func (h *Handler) send(ctx context.Context, c *entityv1.SendCommandRequest) error {
	_, err := h.Entities.SendCommand(ctx, connect.NewRequest(c))
	return asRunError(err)
}

// check returns an error if the type is not a workflow.
func (h *Handler) check(ctx context.Context, entityType string) error {
	if _, err := h.Types.Encoding(ctx, entityType); err != nil {
		return err
	}
	switch {
	case h.Runs == nil:
		return request.ErrUnsupported
	case !h.Runs.IsWorkflow(entityType):
		return &runError{connect.CodeFailedPrecondition, reasonNotWorkflow, "the type " + entityType + " is not a workflow: use the entity commands"}
	}
	return nil
}

// Reasons of errors about runs.
const (
	reasonNotFound    = "RUN_NOT_FOUND"
	reasonExists      = "RUN_EXISTS"
	reasonEnded       = "RUN_ENDED"
	reasonNotWorkflow = "NOT_A_WORKFLOW"
	reasonTooManyRuns = "TOO_MANY_RUNS"
)

// runError is an error about a run, with a reason for programs.
type runError struct {
	code   connect.Code
	reason string
	text   string
}

// errNotFound: there is no run of the requested id.
var errNotFound = &runError{connect.CodeNotFound, reasonNotFound, "there is no run of this id"}

func (e *runError) Error() string { return e.text }

// Code implements status.Coded.
func (e *runError) Code() connect.Code { return e.code }

// asRunError converts the rejection of a command by a run to an error with a
// reason. It returns other errors unchanged.
func asRunError(err error) error {
	rejection := rejectionOf(err)
	switch rejection.GetCode() {
	case codeAlreadyStarted:
		return &runError{connect.CodeAlreadyExists, reasonExists, "a run of this id has another input"}
	case codeNotStarted:
		return errNotFound
	case codeEnded:
		return &runError{connect.CodeFailedPrecondition, reasonEnded, rejection.GetMessage()}
	case codeTooManyRuns:
		return tooManyRuns(rejection.GetMessage())
	}
	return err
}

// tooManyRuns returns the error for a start that exceeds max-open-runs.
func tooManyRuns(text string) error {
	out := connect.NewError(connect.CodeResourceExhausted, errors.New(text))
	for _, m := range []proto.Message{status.Reason(reasonTooManyRuns), &errdetails.RetryInfo{RetryDelay: durationpb.New(tooManyRunsRetry)}} {
		if d, err := connect.NewErrorDetail(m); err == nil {
			out.AddDetail(d)
		}
	}
	return out
}

// rejectionOf returns the rejection in an error, nil if there is none.
func rejectionOf(err error) *entityv1.Rejection {
	var public *connect.Error
	if !errors.As(err, &public) {
		return nil
	}
	for _, d := range public.Details() {
		if value, err := d.Value(); err == nil {
			if rejection, ok := value.(*entityv1.Rejection); ok {
				return rejection
			}
		}
	}
	return nil
}

// Detail implements status.Detailed.
func (e *runError) Detail() proto.Message { return status.Reason(e.reason) }
