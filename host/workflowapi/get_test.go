package workflowapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// group has the state of one run, and the nodes of its shard. One of the nodes
// leads the shard.
type group struct {
	mu      sync.Mutex
	leader  sharding.NodeID
	state   journal.RunState
	changed chan struct{} // closed on the next change
	waiting chan sharding.NodeID
	urls    map[sharding.NodeID]string
}

// change changes the run or its leader, and wakes all goroutines that wait
// for a change.
func (g *group) change(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
	close(g.changed)
	g.changed = make(chan struct{})
}

// groupNode is one node's view of its group.
type groupNode struct {
	*shards
	*group
	id   sharding.NodeID
	read bool // callers may read
	// callers may not query
	unseen bool

	commands atomic.Int64 // sent through the node
	streams  atomic.Int64 // of the caller
	most     int64        // limit of the streams
}

// SendCommand counts a command, which the node charges to the caller.
func (n *groupNode) SendCommand(context.Context, *connect.Request[entityv1.SendCommandRequest]) (*connect.Response[entityv1.SendCommandResponse], error) {
	n.commands.Add(1)
	state, err := structpb.NewStruct(map[string]any{"status": "running", "waitsFor": []any{"wait approval"}})
	return connect.NewResponse(&entityv1.SendCommandResponse{Payload: &entityv1.SendCommandResponse_Json{Json: structpb.NewStructValue(state)}}), err
}

func (n *groupNode) QueryEntity(context.Context, *connect.Request[entityv1.QueryEntityRequest]) (*connect.Response[entityv1.QueryEntityResponse], error) {
	return nil, request.ErrUnsupported
}

func (n *groupNode) ReadRecords(context.Context, *connect.Request[entityv1.ReadRecordsRequest]) (*connect.Response[entityv1.ReadRecordsResponse], error) {
	return nil, request.ErrUnsupported
}

// Stream counts a stream of the caller.
func (n *groupNode) Stream(context.Context) (func(), error) {
	if n.streams.Add(1) > n.most {
		n.streams.Add(-1)
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("streams"))
	}
	return func() { n.streams.Add(-1) }, nil
}

func (n *groupNode) Leader(sharding.ShardID) (sharding.NodeID, bool, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leader, n.leader == n.id, n.leader != ""
}

func (n *groupNode) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

func (n *groupNode) Quorum(sharding.ShardID) bool                  { return true }
func (n *groupNode) Missing(sharding.ShardID) (m sharding.Missing) { return m }
func (n *groupNode) Hears(sharding.NodeID) bool                    { return true }
func (n *groupNode) Client(node sharding.NodeID) (*http.Client, string, error) {
	return http.DefaultClient, n.urls[node], nil
}

func (n *groupNode) MayRead(context.Context, string, string) bool { return n.read }

func (n *groupNode) MayQuery(context.Context, string, string, string) bool { return !n.unseen }

func (n *groupNode) Run(_ context.Context, id sharding.EntityID) (entityapi.RunInfo, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return entityapi.RunInfo{ID: id, Status: journal.RunStatus{State: n.state}, LastError: "secret"}, nil
}

func (n *groupNode) WatchRun(sharding.EntityID) (<-chan struct{}, func()) {
	n.waiting <- n.id
	return n.Changed(), func() {}
}

// newGroup returns nodes a and b, with the streams that each admits.
func newGroup(t *testing.T, streams map[sharding.NodeID]int) (*group, map[sharding.NodeID]*Handler) {
	g := &group{leader: "a", state: journal.RunRunning, changed: make(chan struct{}), waiting: make(chan sharding.NodeID, 10), urls: map[sharding.NodeID]string{}}
	handlers := map[sharding.NodeID]*Handler{}
	for _, id := range []sharding.NodeID{"a", "b"} {
		n := &groupNode{shards: &shards{}, group: g, id: id, read: id == "a", most: 10}
		h := NewHandler(Options{Entities: n, Quotas: n, Runs: n, Shards: n, Types: n, Proxy: leaderproxy.New(n), Auth: n, Log: slog.New(slog.DiscardHandler),
			Streams: admission.NewStreams(streams[id], streams[id], time.Minute, nil)})
		mux := http.NewServeMux()
		mux.Handle(workflowv1connect.NewWorkflowServiceHandler(h))
		server := httptest.NewServer(leaderproxy.Handler(mux))
		t.Cleanup(server.Close)
		g.urls[id], handlers[id] = server.URL, h
	}
	return g, handlers
}

// begin waits for the run at a node.
func begin(t *testing.T, h *Handler) <-chan error {
	done := make(chan error, 1)
	go func() {
		res, err := h.GetWorkflow(t.Context(), connect.NewRequest(&workflowv1.GetWorkflowRequest{EntityType: "payout", EntityId: "r", Wait: durationpb.New(time.Minute)}))
		if err == nil && res.Msg.GetRun().GetStatus() != workflowv1.RunStatus_COMPLETED {
			err = status.Argument("the wait has ended before the run: " + res.Msg.GetRun().GetStatus().String())
		}
		done <- err
	}()
	return done
}

// TestWaitsContinueWithTheNextLeader begins a wait at each node, and then
// lets the shard lose its leader: at first no node leads it, then the other
// node does. Both waits continue at the new leader and return the end of the
// run.
func TestWaitsContinueWithTheNextLeader(t *testing.T) {
	g, nodes := newGroup(t, map[sharding.NodeID]int{"a": 10, "b": 10})
	atA, atB := begin(t, nodes["a"]), begin(t, nodes["b"])
	for range 2 {
		if at := <-g.waiting; at != "a" {
			t.Errorf("a wait is at %s, which does not lead", at)
		}
	}
	g.change(func() { g.leader = "" })
	g.change(func() { g.leader = "b" })
	for range 2 {
		if at := <-g.waiting; at != "b" {
			t.Errorf("a wait continues at %s", at)
		}
	}
	g.change(func() { g.state = journal.RunCompleted })
	for node, done := range map[string]<-chan error{"a": atA, "b": atB} {
		if err := <-done; err != nil {
			t.Errorf("the wait at %s: %v", node, err)
		}
	}
}

// TestWaitsCountAtTheNodeThatWasCalled checks that a wait for a run of another
// node uses a stream of the node that the client called, and none of the
// leader.
func TestWaitsCountAtTheNodeThatWasCalled(t *testing.T) {
	g, nodes := newGroup(t, map[sharding.NodeID]int{"a": 0, "b": 1})
	done := begin(t, nodes["b"])
	select {
	case <-g.waiting:
	case err := <-done:
		t.Fatalf("the leader has no stream left for its own clients, and rejects the wait of another node's: %v", err)
	}
	if err := <-begin(t, nodes["b"]); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a second wait where only one stream is admitted: %v", err)
	}
	g.change(func() { g.state = journal.RunCompleted })
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestStartIsChargedWhereItWasCalled checks that a start and its wait count for
// the caller's quotas at the node that was called, although a different node
// leads the shard: the leader counts nothing for callers of other nodes.
func TestStartIsChargedWhereItWasCalled(t *testing.T) {
	g, nodes := newGroup(t, map[sharding.NodeID]int{"a": 10, "b": 10})
	a, b := nodes["a"].Runs.(*groupNode), nodes["b"].Runs.(*groupNode)
	b.most = 1
	start := func() error {
		_, err := nodes["b"].StartWorkflow(t.Context(), connect.NewRequest(&workflowv1.StartWorkflowRequest{EntityType: "payout", EntityId: "r", Wait: durationpb.New(time.Minute)}))
		return err
	}
	done := make(chan error, 1)
	go func() { done <- start() }()
	select {
	case <-g.waiting:
	case err := <-done:
		t.Fatal(err)
	}
	if err := start(); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a second wait of a caller who may have one stream: %v", err)
	}
	g.change(func() { g.state = journal.RunCompleted })
	if err := <-done; err != nil {
		t.Error(err)
	}
	if a.commands.Load() != 0 || b.commands.Load() != 1 || a.streams.Load() != 0 || b.streams.Load() != 0 {
		t.Errorf("the leader counted %d commands and %d streams, and the called node %d and %d", a.commands.Load(), a.streams.Load(), b.commands.Load(), b.streams.Load())
	}
}

// TestStartWithoutTheRightToQueryShowsNoState: a caller who may start runs but not
// query them gets only the status, at whichever node, and does not wait.
func TestStartWithoutTheRightToQueryShowsNoState(t *testing.T) {
	g, nodes := newGroup(t, map[sharding.NodeID]int{"a": 10, "b": 10})
	g.change(func() { g.state = journal.RunCompleted })
	for id, h := range nodes {
		h.Runs.(*groupNode).unseen = true
		res, err := h.StartWorkflow(t.Context(), connect.NewRequest(&workflowv1.StartWorkflowRequest{EntityType: "payout", EntityId: "r", Wait: durationpb.New(time.Minute)}))
		if want := (&workflowv1.Run{EntityType: "payout", EntityId: "r", Status: workflowv1.RunStatus_RUNNING}); err != nil || !proto.Equal(res.Msg.GetRun(), want) {
			t.Errorf("at %s: %v, %v", id, res, err)
		}
	}
}

// TestLastErrorNeedsTheRightToRead checks that only a caller who may read the
// entity gets the last error of a run, because the error may contain data that
// others must not see. The node that was called decides, whichever node leads
// the shard.
func TestLastErrorNeedsTheRightToRead(t *testing.T) {
	_, nodes := newGroup(t, nil)
	for id, want := range map[sharding.NodeID]string{"a": "secret", "b": ""} {
		res, err := nodes[id].GetWorkflow(t.Context(), connect.NewRequest(&workflowv1.GetWorkflowRequest{EntityType: "payout", EntityId: "r"}))
		if err != nil || res.Msg.GetRun().GetLastError() != want {
			t.Errorf("at %s: %v, %v, want the last error %q", id, res, err, want)
		}
	}
}
