package forward

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/router"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

const testShards = 8

// site is a node: a world that runs commands, a gate that knows which shards
// the node leads, and a server for other nodes.
type site struct {
	name   sharding.NodeID
	world  *rpctest.World
	gate   *gate
	server *Server
	http   *http.Server
	addr   string
	conns  *listener
}

// gate passes requests to the world while the node leads their shard.
type gate struct {
	world *rpctest.World
	leads *leads
	self  sharding.NodeID
	hook  func([]*request.Request)
}

func (g *gate) Submit(reqs []*request.Request) {
	if g.hook != nil {
		g.hook(reqs)
	}
	g.leads.mu.Lock()
	leader := g.leads.leader // an executor uses one leadership state for all requests that it took together
	g.leads.mu.Unlock()
	var mine []*request.Request
	for _, q := range reqs {
		q.Shard = sharding.ShardOf(q.Entity, testShards)
		if leader[q.Shard] == g.self {
			mine = append(mine, q)
			continue
		}
		q.Result = request.Result{Err: &sharding.NotLeaderError{Shard: q.Shard}}
		q.Done.Complete(q)
	}
	g.world.Submit(mine)
}

// leads records the leaders of all shards. All nodes share it.
type leads struct {
	mu      sync.Mutex
	leader  [testShards + 1]sharding.NodeID
	changed chan struct{}
}

func newLeads(node sharding.NodeID) *leads {
	l := &leads{changed: make(chan struct{})}
	for i := range l.leader {
		l.leader[i] = node
	}
	return l
}

func (l *leads) at(shard sharding.ShardID) (sharding.NodeID, bool, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader[shard], false, l.leader[shard] != ""
}

func (l *leads) move(shard sharding.ShardID, node sharding.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leader[shard] = node
	close(l.changed)
	l.changed = make(chan struct{})
}

// view is one node's knowledge of the leaders.
type view struct {
	*leads
	self sharding.NodeID
}

func (v view) Leader(shard sharding.ShardID) (sharding.NodeID, bool, bool) {
	node, _, known := v.at(shard)
	return node, node == v.self, known
}
func (v view) Candidates(sharding.ShardID) []sharding.NodeID   { return nil }
func (v view) Missing(sharding.ShardID) sharding.Missing       { return sharding.Missing{} }
func (v view) Quorum(sharding.ShardID) bool                    { return true }
func (v view) MayLead(sharding.NodeID, sharding.ShardID) bool  { return true }
func (v view) StopReason(sharding.ShardID) sharding.StopReason { return 0 }
func (v view) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

// listener can cut the connections that it has accepted.
type listener struct {
	net.Listener
	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		l.conns[c] = struct{}{}
		l.mu.Unlock()
	}
	return c, err
}

func (l *listener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
		delete(l.conns, c)
	}
}

func newSite(t testing.TB, name sharding.NodeID, world *rpctest.World, l *leads, change ...func(*ServerOptions)) *site {
	t.Helper()
	before := runtime.NumGoroutine()
	s := &site{name: name, world: world, gate: &gate{world: world, leads: l, self: name}}
	var err error
	opts := ServerOptions{Local: s.gate, Leaders: view{l, name}, Shards: testShards}
	for _, f := range change {
		f(&opts)
	}
	if s.server, err = NewServer(opts); err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.conns, s.addr = &listener{Listener: tcp, conns: map[net.Conn]struct{}{}}, tcp.Addr().String()
	mux := http.NewServeMux()
	path, handler := s.server.Handler()
	mux.Handle(path, handler)
	mux.Handle("/as/{node}"+path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node := r.PathValue("node")
		http.StripPrefix("/as/"+node, handler).ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, node)))
	}))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s.http = &http.Server{Handler: mux, Protocols: protocols, ReadTimeout: 10 * time.Second}
	go s.http.Serve(s.conns)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.server.Close(ctx); err != nil {
			t.Errorf("close %s: %v", name, err)
		}
		s.http.Close()
		eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
	})
	return s
}

// network finds sites.
type network struct {
	client *http.Client
	mu     sync.Mutex
	sites  map[sharding.NodeID]string
}

func newNetwork(t testing.TB, sites ...*site) *network {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	n := &network{client: &http.Client{Transport: &http.Transport{Protocols: protocols}}, sites: map[sharding.NodeID]string{}}
	for _, s := range sites {
		n.sites[s.name] = s.addr
	}
	t.Cleanup(n.client.CloseIdleConnections)
	return n
}

func (n *network) Client(node sharding.NodeID) (*http.Client, string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if addr := n.sites[node]; addr != "" {
		return n.client, "http://" + addr, nil
	}
	return nil, "", errors.New("the node is not known")
}

func newTestClient(t testing.TB, n *network, change ...func(*Options)) *Client {
	t.Helper()
	o := Options{Self: "caller", Peers: n}
	for _, f := range change {
		f(&o)
	}
	c, err := NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			buf := make([]byte, 1<<20)
			t.Errorf("close the client: %v\n%s", err, buf[:runtime.Stack(buf, true)])
		}
		n.client.CloseIdleConnections()
	})
	return c
}

// collector waits for requests.
type collector struct {
	left atomic.Int64
	done chan struct{}
	each func(*request.Request)
}

func collect(n int, each func(*request.Request)) *collector {
	c := &collector{done: make(chan struct{}), each: each}
	c.left.Store(int64(n))
	return c
}

func (c *collector) Complete(q *request.Request) {
	if c.each != nil {
		c.each(q)
	}
	if c.left.Add(-1) == 0 {
		close(c.done)
	}
}

func (c *collector) wait(t testing.TB) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%d requests are not completed", c.left.Load())
	}
}

var commandNumber atomic.Uint64

func command(id, name, payload string) *request.Request {
	e := sharding.EntityID{Type: rpctest.Counter, ID: id}
	return &request.Request{
		Kind: request.Command, Entity: e, Name: name, Payload: []byte(payload), Shard: sharding.ShardOf(e, testShards),
		ID: commandID(), ExpectedSequence: request.NoExpectation, Deadline: time.Now().Add(time.Minute),
	}
}

// run submits requests and waits for them.
func run(t testing.TB, to router.Local, reqs ...*request.Request) {
	t.Helper()
	c := collect(len(reqs), nil)
	for _, q := range reqs {
		q.Done = c
	}
	to.Submit(reqs)
	c.wait(t)
}

// toNode submits to one node.
type toNode struct {
	client *Client
	node   sharding.NodeID
}

func (n toNode) Submit(reqs []*request.Request) { n.client.Submit(n.node, reqs) }

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("waited too long for %s\n%s", what, buf[:runtime.Stack(buf, true)])
		}
	}
}

func amount(i int) string { return fmt.Sprintf(`{"amount":%d}`, i) }
