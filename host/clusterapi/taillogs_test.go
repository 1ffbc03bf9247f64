package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// logPatience is the time limit for events that must come eventually, even on a
// loaded machine.
const logPatience = time.Minute

// nodes are services that reach each other over HTTP. No shard has a leader.
type nodes struct {
	t    *testing.T
	all  []*node
	http *http.Client
}

type node struct {
	clusterv1connect.UnimplementedClusterServiceHandler
	*logTail
	id     sharding.NodeID
	server *httptest.Server
	down   atomic.Bool // the node answers no request
	client clusterv1connect.ClusterServiceClient
}

// TailLogs implements the service, because both embedded types have the method.
func (n *node) TailLogs(ctx context.Context, r *connect.Request[clusterv1.TailLogsRequest], out *connect.ServerStream[clusterv1.TailLogsResponse]) error {
	return n.logTail.TailLogs(ctx, r, out)
}

// Leader implements leaderproxy.Nodes.
func (nodes) Leader(sharding.ShardID) (sharding.NodeID, bool, bool) { return "", false, false }

// Quorum implements leaderproxy.Nodes.
func (nodes) Quorum(sharding.ShardID) bool { return true }

// Missing implements leaderproxy.Nodes.
func (nodes) Missing(sharding.ShardID) sharding.Missing { return sharding.Missing{} }

// Hears implements leaderproxy.Nodes.
func (nodes) Hears(sharding.NodeID) bool { return true }

// Changed implements leaderproxy.Nodes.
func (nodes) Changed() <-chan struct{} { return nil }

// Client implements leaderproxy.Nodes.
func (n *nodes) Client(id sharding.NodeID) (*http.Client, string, error) {
	for _, other := range n.all {
		if other.id == id {
			return n.http, other.server.URL, nil
		}
	}
	return nil, "", errors.New("there is no such node")
}

func start(t *testing.T, count int) *nodes {
	t.Helper()
	fleet := &nodes{t: t, http: &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		for _, n := range fleet.all {
			n.server.CloseClientConnections()
			n.server.Close()
		}
		fleet.http.CloseIdleConnections()
	})
	var ids []sharding.NodeID
	for i := range count {
		ids = append(ids, sharding.NodeID(fmt.Sprint("n", i+1)))
	}
	for _, id := range ids {
		n := &node{id: id, logTail: &logTail{
			allNodes: allNodes{
				Self: string(id), Nodes: fixedMembers(ids), Proxy: leaderproxy.New(fleet),
				Streams: admission.NewStreams(100, 100, time.Minute, admission.NewConnections(100, 100)), Log: slog.New(slog.DiscardHandler),
			},
			Lines: &modules.GuestLines{},
			Types: onlyTellers{},
		}}
		_, handler := clusterv1connect.NewClusterServiceHandler(n)
		mux := http.NewServeMux()
		mux.Handle("/", handler)
		mux.Handle(leaderproxy.Path, leaderproxy.Handler(handler))
		n.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.down.Load() {
				http.Error(w, "down", http.StatusServiceUnavailable)
				return
			}
			mux.ServeHTTP(w, r)
		}))
		n.client = clusterv1connect.NewClusterServiceClient(fleet.http, n.server.URL)
		fleet.all = append(fleet.all, n)
	}
	return fleet
}

func (n *node) say(entityType, id, text string) {
	n.Lines.Add(sharding.EntityID{Type: entityType, ID: id}, journal.Digest{1}, modules.LineInfo, []byte(text))
}

// told collects the lines and the missing nodes that a call has sent so far.
type told struct {
	t       *testing.T
	stream  *connect.ServerStreamForClient[clusterv1.TailLogsResponse]
	lines   map[string]bool // keys are "node id text"
	missing map[string]int
}

func (f *nodes) tail(at int, r *clusterv1.TailLogsRequest) *told {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), logPatience)
	f.t.Cleanup(cancel)
	r.EntityType = "teller"
	stream, err := f.all[at].client.TailLogs(ctx, connect.NewRequest(r))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { cancel(); stream.Close() })
	return &told{f.t, stream, map[string]bool{}, map[string]int{}}
}

// next reads one message; it returns false at the end.
func (w *told) next() bool {
	if !w.stream.Receive() {
		return false
	}
	m := w.stream.Msg()
	for _, l := range m.GetLines() {
		w.lines[m.GetNodeId()+" "+l.GetEntityId()+" "+l.GetText()] = true
	}
	for _, id := range m.GetMissingNodes() {
		w.missing[id]++
	}
	return true
}

// until reads messages until the condition holds.
func (w *told) until(what string, is func() bool) {
	w.t.Helper()
	for !is() {
		if !w.next() {
			w.t.Fatalf("%s: the stream ended early: %v, %v: %v", what, slices.Sorted(maps.Keys(w.lines)), w.missing, w.stream.Err())
		}
	}
}

func (w *told) line(line string) {
	w.t.Helper()
	w.until(line, func() bool { return w.lines[line] })
}

// TestTailLogsReadsAllNodes checks that on any node, a call that does not
// follow sends the lines of the type, or of the entity, from all nodes, reports
// nodes that do not answer, and ends.
func TestTailLogsReadsAllNodes(t *testing.T) {
	f := start(t, 3)
	for _, n := range f.all {
		n.say("teller", "a", "of a")
		n.say("teller", "b", "of b")
		n.say("tailor", "a", "of another type")
	}
	for at := range f.all {
		w := f.tail(at, &clusterv1.TailLogsRequest{})
		for w.next() {
		}
		if err := w.stream.Err(); err != nil || len(w.lines) != 6 || len(w.missing) != 0 || !w.lines["n3 b of b"] {
			t.Errorf("node %d tells %v, misses %v: %v", at, slices.Sorted(maps.Keys(w.lines)), w.missing, err)
		}
	}
	w := f.tail(1, &clusterv1.TailLogsRequest{EntityId: "b"})
	for w.next() {
	}
	if len(w.lines) != 3 || !w.lines["n1 b of b"] {
		t.Errorf("of one entity: %v", slices.Sorted(maps.Keys(w.lines)))
	}
	f.all[2].down.Store(true)
	w = f.tail(0, &clusterv1.TailLogsRequest{})
	for w.next() {
	}
	if err := w.stream.Err(); err != nil || len(w.lines) != 4 || w.missing["n3"] != 1 || len(w.missing) != 1 {
		t.Errorf("without a node: %v, misses %v: %v", slices.Sorted(maps.Keys(w.lines)), w.missing, err)
	}
	stream, err := f.all[0].client.TailLogs(t.Context(), connect.NewRequest(&clusterv1.TailLogsRequest{EntityType: "nobody"}))
	if err == nil {
		for stream.Receive() {
			t.Error("lines of no type")
		}
		err = errors.Join(stream.Err(), stream.Close())
	}
	if connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("of no type: %v", err)
	}
}

// TestTailLogsFollowsNewLines: new lines of any node are sent. A node that stops is
// reported once, and its lines are sent again when it is back.
func TestTailLogsFollowsNewLines(t *testing.T) {
	f := start(t, 3)
	f.all[2].say("teller", "a", "before")
	w := f.tail(0, &clusterv1.TailLogsRequest{Follow: true})
	w.line("n3 a before")
	for _, n := range f.all {
		n.say("teller", "a", "first")
		w.line(string(n.id) + " a first")
	}
	f.all[2].down.Store(true)
	f.all[2].server.CloseClientConnections()
	w.until("a node is missing", func() bool { return w.missing["n3"] > 0 })
	f.all[1].say("teller", "b", "meanwhile")
	w.line("n2 b meanwhile")
	f.all[2].down.Store(false)
	f.all[2].say("teller", "b", "back")
	w.line("n3 b back")
	if w.missing["n3"] != 1 || len(w.missing) != 1 {
		t.Errorf("missing are %v", w.missing)
	}
}

// fixedMembers lists nodes that do not change.
type fixedMembers []sharding.NodeID

func (m fixedMembers) Members(context.Context) ([]sharding.NodeID, error) {
	return slices.Clone(m), nil
}

// onlyTellers knows one type.
type onlyTellers struct{}

func (onlyTellers) CheckType(_ context.Context, entityType string) error {
	if entityType != "teller" {
		return request.ErrUnknownType
	}
	return nil
}
