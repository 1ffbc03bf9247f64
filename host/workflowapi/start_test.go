package workflowapi

import (
	"context"
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

// movingEntities takes the payload out of each command, as the EntityService does,
// and loses the leadership during the first one.
type movingEntities struct {
	entities
	inputs []string
}

func (e *movingEntities) SendCommand(_ context.Context, r *connect.Request[entityv1.SendCommandRequest]) (*connect.Response[entityv1.SendCommandResponse], error) {
	e.inputs = append(e.inputs, string(r.Msg.GetData()))
	r.Msg.Payload = nil
	if len(e.inputs) == 1 {
		return nil, &sharding.NotLeaderError{}
	}
	return connect.NewResponse(&entityv1.SendCommandResponse{}), nil
}

// TestStartDropsItsInputOnceSent: a start that is repeated has its input again,
// and the wait for the run's end does not keep the input, which is no longer
// charged.
func TestStartDropsItsInputOnceSent(t *testing.T) {
	g, nodes := newGroup(t, map[sharding.NodeID]int{"a": 10, "b": 10})
	sent := &movingEntities{entities: nodes["a"].Entities}
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
	if want := []string{"input", "input"}; !slices.Equal(sent.inputs, want) {
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
