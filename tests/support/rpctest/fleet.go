package rpctest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/loopback"
)

// Shards is the number of data shards of a world.
const Shards = 4

// Fleet is a set of nodes with real servers in front of one world, which
// represents their replicated log. A node runs requests for the shards that it
// leads. It rejects requests for other shards or, if Forwards is set, runs them
// as if it had forwarded them to the leader.
type Fleet struct {
	World    *World
	Forwards bool
	// Holds reports whether a node has a replica of a shard that it does not
	// lead. Nil means that only leaders have replicas. Set it before the first
	// request.
	Holds func(sharding.NodeID, sharding.ShardID) bool

	// ClusterID is the cluster ID that the nodes report, "world" by default.
	// Set it before a node starts.
	ClusterID string

	// Untold makes the nodes hide the shard key of the type counter from callers.
	Untold atomic.Bool

	client *http.Client

	mu      sync.Mutex
	nodes   []*Node
	leader  [Shards + 1]sharding.NodeID
	changed chan struct{}
}

// Node is one node of a Fleet.
type Node struct {
	ID   sharding.NodeID
	Addr string
	// Requests counts the requests for shards that the node leads, Strays the
	// requests for other shards.
	Requests, Strays atomic.Int64
	// CutOff makes the node report that it reaches no quorum of any shard.
	CutOff atomic.Bool

	fleet  *Fleet
	server *services.Server
	ended  chan error
}

// NewFleet starts n nodes, named n1 to nN. n1 leads every shard.
func NewFleet(n int) (*Fleet, error) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	c := &Fleet{World: New(), changed: make(chan struct{}), ClusterID: "world", client: &http.Client{Transport: &http.Transport{Protocols: protocols}}}
	for i := range n {
		node := &Node{ID: sharding.NodeID(fmt.Sprint("n", i+1)), Addr: loopback.Host() + ":0", fleet: c}
		c.nodes = append(c.nodes, node)
		if err := node.Start(); err != nil {
			c.Close()
			return nil, err
		}
	}
	for i := range c.leader {
		c.leader[i] = "n1"
	}
	return c, nil
}

// Close kills the nodes and closes the world.
func (c *Fleet) Close() {
	for _, n := range c.nodes {
		n.Kill()
	}
	c.client.CloseIdleConnections()
	c.World.Close()
}

// Node returns the i-th node, counted from 1.
func (c *Fleet) Node(i int) *Node { return c.nodes[i-1] }

// Move makes a node the leader of a shard. An empty ID leaves the shard without
// a leader.
func (c *Fleet) Move(shard sharding.ShardID, to sharding.NodeID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader[shard] = to
	close(c.changed)
	c.changed = make(chan struct{})
}

// Leader returns the ID of a shard's leader; empty if there is none.
func (c *Fleet) Leader(shard sharding.ShardID) sharding.NodeID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader[shard]
}

// Start starts the server, at the address of the previous server if there was
// one.
func (n *Node) Start() error {
	l, err := net.Listen("tcp", n.Addr)
	if err != nil {
		return err
	}
	if at := l.Addr().String(); at != n.Addr { // only on the first start, because Addr is read concurrently later
		n.Addr = at
	}
	deps := n.fleet.World.Services()
	deps.Entity.Runtime, deps.Nodes, deps.Cluster.View = n, nodeView{n}, nodeView{n}
	deps.Entity.Histories, deps.Entity.Entities = nodeHistories{n.fleet.World, n}, nodeEntities{roleEntities{n.fleet.World}, n}
	deps.Entity.EventOrder = eventOrder{n.fleet.World, n.holds}
	var server *services.Server
	server = services.NewServer(deps, edge.Options{NodeID: n.ID, Node: servedNode(n.fleet.ClusterID), Internal: map[string]http.Handler{
		leaderproxy.Path: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { server.ForPeers().ServeHTTP(w, r) }),
	}})
	ended := make(chan error, 1)
	n.server, n.ended = server, ended
	go func() { ended <- server.Serve(l) }()
	return nil
}

// servedNode is a node of a cluster that is always open and ready.
type servedNode string

func (servedNode) Ready() error      { return nil }
func (servedNode) Remarks() string   { return "" }
func (servedNode) Opened() error     { return nil }
func (n servedNode) Cluster() string { return string(n) }
func (servedNode) PeersAt() string   { return "" }

// Kill closes every connection at once and stops the server. Further calls do
// nothing.
func (n *Node) Kill() {
	if n.server == nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	n.server.Shutdown(ctx)
	<-n.ended
	n.server = nil
}

// Stop stops the server gracefully: requests in progress may complete.
func (n *Node) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	n.server.Shutdown(ctx)
	<-n.ended
	n.server = nil
}

// Submit implements entityapi.Runtime.
func (n *Node) Submit(reqs []*request.Request) {
	c := n.fleet
	c.mu.Lock()
	leader := c.leader
	c.mu.Unlock()
	var mine []*request.Request
	for _, q := range reqs {
		q.Shard = sharding.ShardOf(q.Entity, Shards)
		at := leader[q.Shard]
		switch {
		case at == n.ID:
			n.Requests.Add(1)
			mine = append(mine, q)
		case c.Forwards && at != "":
			n.Strays.Add(1)
			q.Done = &forwarded{q.Done, at}
			mine = append(mine, q)
		default:
			n.Strays.Add(1)
			q.Result = request.Result{Err: &sharding.NotLeaderError{Shard: q.Shard, Leader: at}}
			q.Done.Complete(q)
		}
	}
	if len(mine) > 0 {
		c.World.Submit(mine)
	}
}

// holds reports whether the node has a replica of the shard.
func (n *Node) holds(shard sharding.ShardID) bool {
	return n.fleet.Leader(shard) == n.ID || n.fleet.Holds != nil && n.fleet.Holds(n.ID, shard)
}

// forwarded adds the ID of the node that ran the request to its result.
type forwarded struct {
	done request.Completer
	node sharding.NodeID
}

func (f *forwarded) Complete(q *request.Request) {
	q.Done, q.Result.Node = f.done, f.node
	q.Done.Complete(q)
}

// nodeView is a node's view of the cluster.
type nodeView struct{ *Node }

func (v nodeView) Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool) {
	node = v.fleet.Leader(shard)
	return node, node == v.ID, node != ""
}

func (v nodeView) Quorum(sharding.ShardID) bool { return !v.CutOff.Load() }

// Missing implements leaderproxy.Nodes.
func (v nodeView) Missing(sharding.ShardID) sharding.Missing { return sharding.Missing{} }

// Hears implements leaderproxy.Nodes.
func (v nodeView) Hears(sharding.NodeID) bool { return true }

func (v nodeView) Changed() <-chan struct{} {
	v.fleet.mu.Lock()
	defer v.fleet.mu.Unlock()
	return v.fleet.changed
}

func (v nodeView) Client(node sharding.NodeID) (*http.Client, string, error) {
	for _, n := range v.fleet.nodes {
		if n.ID == node {
			return v.fleet.client, "http://" + n.Addr, nil
		}
	}
	return nil, "", errors.New("there is no such node")
}

// Overview implements clusterapi.View.
func (v nodeView) Overview(context.Context) (clusterapi.Overview, error) {
	o := clusterapi.Overview{ClusterID: v.fleet.ClusterID, Coordinator: "n1", Quorum: true, ShardCount: Shards, ShardKeys: []clusterapi.ShardKey{{EntityType: Blob}}}
	if !v.fleet.Untold.Load() {
		o.ShardKeys = append(o.ShardKeys, clusterapi.ShardKey{EntityType: Counter})
	}
	for _, n := range v.fleet.nodes {
		o.Members = append(o.Members, clusterapi.Member{ID: n.ID, Address: n.Addr, Status: "up", Reachable: true})
	}
	return o, nil
}

// Leaders implements clusterapi.View.
func (v nodeView) Leaders() []sharding.NodeID {
	out := make([]sharding.NodeID, Shards+1)
	for s := sharding.ShardID(1); s <= Shards; s++ {
		out[s] = v.fleet.Leader(s)
	}
	return out
}

// Shards implements clusterapi.View.
func (v nodeView) Shards(context.Context) ([]clusterapi.Shard, error) {
	out := []clusterapi.Shard{{ID: sharding.MetaShard, Leader: "n1"}}
	for s := sharding.ShardID(1); s <= Shards; s++ {
		out = append(out, clusterapi.Shard{ID: s, Leader: v.fleet.Leader(s), Term: 1})
	}
	return out, nil
}

// ErrNotHere is the error of a request for a shard that the node does not lead.
var ErrNotHere = errors.New("this node was asked for what it does not lead")

type nodeHistories struct {
	*World
	node *Node
}

func (h nodeHistories) Read(ctx context.Context, id sharding.EntityID, from journal.Sequence, fn func(*journal.Record) error) error {
	shard := sharding.ShardOf(id, Shards)
	if !h.node.holds(shard) {
		return &sharding.NotLeaderError{Shard: shard}
	}
	return h.World.Read(ctx, id, from, fn)
}

type nodeEntities struct {
	roleEntities
	node *Node
}

func (e nodeEntities) Get(ctx context.Context, id sharding.EntityID) (entityapi.EntityInfo, error) {
	info, err := e.roleEntities.Get(ctx, id)
	if err == nil && e.node.fleet.Leader(info.Shard) != e.node.ID {
		err = ErrNotHere
	}
	info.Node = e.node.ID
	return info, err
}

func (e nodeEntities) List(ctx context.Context, shard sharding.ShardID, q entityapi.EntityQuery) (entityapi.EntityPage, error) {
	if e.node.fleet.Leader(shard) != e.node.ID {
		return entityapi.EntityPage{}, ErrNotHere
	}
	return e.roleEntities.List(ctx, shard, q)
}
