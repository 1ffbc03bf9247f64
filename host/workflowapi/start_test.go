package workflowapi

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// sentEntities records commands, and answers them with err if it is set.
type sentEntities struct {
	entities
	inputs []string
	err    error
}

func (e *sentEntities) SendCommand(_ context.Context, r *connect.Request[entityv1.SendCommandRequest]) (*connect.Response[entityv1.SendCommandResponse], error) {
	e.inputs = append(e.inputs, string(r.Msg.GetData()))
	return connect.NewResponse(&entityv1.SendCommandResponse{}), e.err
}

// TestStartDropsItsInputOnceSent: the wait for the run's end does not keep the
// input, which is no longer charged.
func TestStartDropsItsInputOnceSent(t *testing.T) {
	g, nodes := newGroup(t, map[sharding.NodeID]int{"a": 10, "b": 10})
	sent := &sentEntities{entities: nodes["a"].Entities}
	nodes["a"].Entities = sent
	start := &workflowv1.StartWorkflowRequest{EntityType: "payout", EntityId: "r", Wait: durationpb.New(time.Minute),
		Input: &workflowv1.StartWorkflowRequest_Data{Data: []byte("input")}}
	done := make(chan error, 1)
	go func() {
		_, err := nodes["a"].StartWorkflow(t.Context(), connect.NewRequest(start))
		done <- err
	}()
	select {
	case <-g.waiting:
	case err := <-done:
		t.Fatal(err)
	}
	if want := []string{"input"}; !slices.Equal(sent.inputs, want) {
		t.Errorf("the start was sent with %q, want %q", sent.inputs, want)
	}
	if start.Input != nil {
		t.Error("the wait keeps the input")
	}
	g.change(func() { g.state = journal.RunCompleted })
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestFailedStartIsSentOnce: a start that fails at a node that does not lead the
// run's shard fails with the error of the command, and is not sent again.
func TestFailedStartIsSentOnce(t *testing.T) {
	_, nodes := newGroup(t, map[sharding.NodeID]int{"a": 10, "b": 10})
	for id, h := range nodes {
		sent := &sentEntities{entities: h.Entities, err: connect.NewError(connect.CodeResourceExhausted, errors.New("quota"))}
		h.Entities = sent
		_, err := h.StartWorkflow(t.Context(), connect.NewRequest(&workflowv1.StartWorkflowRequest{EntityType: "payout", EntityId: "r", Wait: durationpb.New(time.Minute)}))
		if connect.CodeOf(err) != connect.CodeResourceExhausted || len(sent.inputs) != 1 {
			t.Errorf("at %s: sent %d times: %v", id, len(sent.inputs), err)
		}
	}
}
