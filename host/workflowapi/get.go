package workflowapi

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
	"github.com/hostd/hostd/api/wire"
	"github.com/hostd/hostd/host/edge/codec"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// answerTime is how long before the deadline of a call its wait ends, so that
// the caller gets the current state of the run instead of an error.
const answerTime = 500 * time.Millisecond

// GetWorkflow returns a run, and waits for its end if that is requested.
func (h *Handler) GetWorkflow(ctx context.Context, r *connect.Request[workflowv1.GetWorkflowRequest]) (*connect.Response[workflowv1.GetWorkflowResponse], error) {
	m := r.Msg
	id := sharding.EntityID{Type: m.GetEntityType(), ID: m.GetEntityId()}
	if err := h.check(ctx, id.Type); err != nil {
		return nil, status.Public(h.Log, err)
	}
	leave, err := h.admit(ctx, m.GetWait().AsDuration())
	if err != nil {
		return nil, status.Public(h.Log, err)
	}
	defer leave()
	run, err := h.wait(ctx, id, m.GetWait().AsDuration(), func(ctx context.Context, leader workflowv1connect.WorkflowServiceClient, left time.Duration) (*workflowv1.Run, error) {
		return h.get(ctx, id, leader, left)
	})
	if err != nil {
		return nil, status.Public(h.Log, err)
	}
	return connect.NewResponse(&workflowv1.GetWorkflowResponse{Run: run}), nil
}

// get gets a run from the node that leads its shard, which is this node if
// leader is nil, once the run has ended or the wait is over.
func (h *Handler) get(ctx context.Context, id sharding.EntityID, leader workflowv1connect.WorkflowServiceClient, wait time.Duration) (*workflowv1.Run, error) {
	if leader == nil {
		return h.await(ctx, id, wait)
	}
	res, err := leader.GetWorkflow(ctx, connect.NewRequest(&workflowv1.GetWorkflowRequest{EntityType: id.Type, EntityId: id.ID, Wait: durationpb.New(wait)}))
	if err != nil {
		return nil, err
	}
	return res.Msg.GetRun(), nil
}

// admit admits a call that may wait; leave must be called at its end. A wait may
// last as long as a stream, so it counts as one, for the node's limits and for
// the caller's quota. It counts on the node that the client called, which knows
// the client's address: if it counted on the leader, an address could use up the
// leader's streams through the other nodes.
func (h *Handler) admit(ctx context.Context, wait time.Duration) (leave func(), err error) {
	if wait <= 0 || leaderproxy.FromPeer(ctx) {
		return func() {}, nil
	}
	end, err := h.Quotas.Stream(ctx)
	if err != nil {
		return nil, err
	}
	stream, err := h.Streams.Enter(ctx)
	if err != nil {
		end()
		return nil, err
	}
	return func() { stream.Leave(); end() }, nil
}

// wait returns a run, once it has ended or the wait is over. ask gets it from
// the node that leads its shard, which is this node if leader is nil. If that
// node loses the shard, the wait continues with the next leader: DoWorkflow
// gives up after a short time without a leader, but a wait that has begun may
// last until its end.
func (h *Handler) wait(ctx context.Context, id sharding.EntityID, wait time.Duration,
	ask func(ctx context.Context, leader workflowv1connect.WorkflowServiceClient, left time.Duration) (*workflowv1.Run, error)) (*workflowv1.Run, error) {
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)-answerTime)
	}
	var pause leaderproxy.Backoff
	began := false
	for end := time.Now().Add(wait); ; {
		left := max(0, time.Until(end))
		run, err := leaderproxy.DoWorkflow(ctx, h.Proxy, h.Shards.ShardOf(id), func(ctx context.Context, leader workflowv1connect.WorkflowServiceClient) (*workflowv1.Run, error) {
			asked := time.Now()
			run, err := ask(ctx, leader, left)
			_, lost := errors.AsType[*sharding.NotLeaderError](err)
			began = began || lost || time.Since(asked) > leaderproxy.Patience
			return run, err
		})
		if err == nil && run.GetLastError() != "" && !leaderproxy.FromPeer(ctx) && !h.Auth.MayRead(ctx, id.Type, id.ID) {
			run.LastError = ""
		}
		if err == nil || !began || left == 0 || leaderproxy.FromPeer(ctx) || !leaderproxy.Retry(err) || pause.Wait(ctx, h.Proxy.Changed()) != nil {
			return run, err
		}
	}
}

// await returns a run whose shard this node leads, once it has ended or the wait
// is over.
func (h *Handler) await(ctx context.Context, id sharding.EntityID, wait time.Duration) (*workflowv1.Run, error) {
	if wait <= 0 {
		return h.run(ctx, id)
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	changed, cancel := h.Runs.WatchRun(id)
	defer cancel()
	shard := h.Shards.ShardOf(id)
	for {
		leaders := h.Proxy.Changed()
		if !h.Proxy.Leads(shard) {
			return nil, &sharding.NotLeaderError{Shard: shard} // a node that forwarded the wait continues it with the next leader
		}
		run, err := h.run(ctx, id)
		if err != nil || run.GetStatus() != workflowv1.RunStatus_RUNNING {
			return run, err
		}
		select {
		case <-changed:
		case <-leaders:
		case <-over.C:
			return run, nil
		case <-h.Streams.Stopping():
			return run, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// run returns a run whose shard this node leads.
func (h *Handler) run(ctx context.Context, id sharding.EntityID) (*workflowv1.Run, error) {
	info, err := h.Runs.Run(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case info.Status.State == 0:
		return nil, errNotFound
	}
	return message(&info), nil
}

// message returns the message that describes a run.
func message(r *entityapi.RunInfo) *workflowv1.Run {
	out := &workflowv1.Run{
		EntityType: r.ID.Type, EntityId: r.ID.ID, Status: statusOf(r.Status.State), Steps: r.Status.Steps, WaitsFor: r.Status.Waits,
		StartedAt: timestamppb.New(time.Unix(0, r.Began)), UpdatedAt: timestamppb.New(time.Unix(0, r.UpdatedAt)), Sequence: uint64(r.Sequence),
		Code: r.Status.Code, Message: r.End.Message, Quarantined: r.Quarantined, LastError: r.LastError,
	}
	out.Result, _ = codec.Render(wire.JSONPayload, r.End.Result)
	return out
}

func statusOf(s journal.RunState) workflowv1.RunStatus {
	switch s {
	case journal.RunRunning:
		return workflowv1.RunStatus_RUNNING
	case journal.RunCompleted:
		return workflowv1.RunStatus_COMPLETED
	case journal.RunFailed:
		return workflowv1.RunStatus_FAILED
	}
	return workflowv1.RunStatus_RUN_STATUS_UNSPECIFIED
}
