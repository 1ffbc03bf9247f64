package workflowapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	workflowv1 "github.com/hostd/hostd/api/gen/hostd/workflow/v1"
	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/entityapi"
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
		n := &groupNode{&shards{}, g, id, id == "a"}
		h := NewHandler(Options{Runs: n, Shards: n, Types: n, Proxy: leaderproxy.New(n), Auth: n, Log: slog.New(slog.DiscardHandler),
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
