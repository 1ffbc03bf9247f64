package client

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

const (
	// refreshEvery is the minimum interval between two requests for the
	// leaders.
	refreshEvery = 200 * time.Millisecond
	// refreshTimeout limits one attempt.
	refreshTimeout = 2 * time.Second
	// deniedFor is how long the client does not ask again after the nodes have
	// denied the request, because the caller's roles rarely change and each denial
	// is logged.
	deniedFor = 10 * time.Minute
	// avoidFor is how long a node that could not be reached is not chosen for
	// the shards that it leads.
	avoidFor = 2 * time.Second
	// maxNodes limits the nodes that a client keeps.
	maxNodes = 256
)

// topology is the mapping of shards to leaders, as one node has reported it. Its
// leaders change; everything else is immutable, and a new report replaces the
// whole topology.
//
// It is only a hint: a node that does not lead a shard forwards the call, so a
// wrong entry costs a hop, but never a wrong result. The calls themselves
// correct it. Each answer names the node that ran the command, which is
// recorded as the leader (answeredBy), and a failed attempt removes the leader
// (lostLeader). If the new leader is unknown, the learner is marked stale, and
// the next call fetches a new report, at most once per refreshEvery. The client
// does not poll, because leaders rarely change.
type topology struct {
	shards  uint32
	leaders []atomic.Pointer[node] // leader of each shard; nil if unknown
	byID    map[string]*node
	from    *node               // the node that reported the leaders
	version string              // version of the node's report; empty if it has none
	told    []string            // the reported leaders, by shard
	keys    map[string]ShardKey // shard keys by type; empty if the nodes report none
}

// route is the target of a call: an entity or, if it is empty, any node.
type route struct{ entityType, entityID string }

// shard returns the shard of a route; 0 if it is unknown.
func (t *topology) shard(r route) uint32 {
	if t == nil || t.shards == 0 || r.entityID == "" {
		return 0
	}
	key, known := t.key(r.entityType)
	if !known {
		return 0
	}
	return key.ShardOf(r.entityType, r.entityID, t.shards)
}

// key returns the shard key of a type. If the nodes report no keys, as in older
// releases, every type gets the zero key, because a wrong guess costs only a
// hop.
func (t *topology) key(entityType string) (key ShardKey, known bool) {
	key, known = t.keys[entityType]
	return key, known || len(t.keys) == 0
}

// strange reports whether no node has reported the type yet.
func (t *topology) strange(entityType string) bool {
	_, told := t.keys[entityType]
	return !told
}

// leader returns the node to call for a shard, or nil if any will do.
func (t *topology) leader(shard uint32) *node {
	if t == nil || shard == 0 {
		return nil
	}
	n := t.leaders[shard].Load()
	if n == nil || n.isAvoided() {
		return nil
	}
	return n
}

// forgetLeader records that a node did not answer for a shard as its leader.
func (t *topology) forgetLeader(shard uint32, n *node) {
	if t != nil && shard != 0 {
		t.leaders[shard].CompareAndSwap(n, nil)
	}
}

// lostLeader records that a node did not accept a command of a shard.
func (c *Client) lostLeader(shard uint32, n *node) {
	c.learner.known.Load().forgetLeader(shard, n)
	c.learner.stale.Store(true)
}

// learner fetches the topology, one caller at a time; other callers continue
// with the known topology.
type learner struct {
	known atomic.Pointer[topology]
	stale atomic.Bool
	mu    sync.Mutex
	last  time.Time // time of the last attempt; guarded by mu
	quiet time.Time // no request before this time, because nodes deny it; guarded by mu
}

// answeredBy records which node ran a command that was sent to n.
func (c *Client) answeredBy(r route, n *node, id string) {
	if c.opts.GivenOnly || id == "" {
		return
	}
	if name := n.id.Load(); name != nil && *name == id {
		return
	}
	t := c.learner.known.Load()
	if shard := t.shard(r); shard != 0 && !t.strange(r.entityType) {
		if leader := t.byID[id]; leader != nil {
			t.leaders[shard].Store(leader)
			return
		}
	}
	c.learner.stale.Store(true)
}

// freshen fetches the topology if there is a sign that it is outdated, unless a
// fetch is in progress or happened a moment ago.
func (c *Client) freshen(ctx context.Context) {
	l := &c.learner
	if c.opts.GivenOnly || !l.stale.Load() || !l.mu.TryLock() {
		return
	}
	defer l.mu.Unlock()
	if time.Since(l.last) < refreshEvery || time.Now().Before(l.quiet) {
		return
	}
	l.last = time.Now()
	switch err := c.learn(ctx); {
	case err == nil:
		l.stale.Store(false)
	case connect.CodeOf(err) == connect.CodePermissionDenied:
		l.quiet = l.last.Add(deniedFor)
	}
}

// learn asks one node for the topology; if that node does not answer, the next
// call asks another node.
func (c *Client) learn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	n, at := c.current()
	cluster, err := n.cluster.GetCluster(ctx, connect.NewRequest(&clusterv1.GetClusterRequest{}))
	if err != nil {
		if connect.CodeOf(err) != connect.CodePermissionDenied {
			c.next(at)
		}
		return err
	}
	ask := &clusterv1.ListShardsRequest{LeadersOnly: true}
	if known := c.learner.known.Load(); known != nil && known.from == n {
		ask.SinceVersion = known.version
	}
	shards, err := n.cluster.ListShards(ctx, connect.NewRequest(ask))
	if err != nil {
		c.next(at)
		return err
	}
	c.take(n, cluster.Msg, shards.Msg)
	return nil
}

// take builds a topology from the response of node n. If the response contains
// only changes, take merges them with the previous response of n.
func (c *Client) take(n *node, cluster *clusterv1.GetClusterResponse, shards *clusterv1.ListShardsResponse) {
	t := &topology{shards: cluster.GetShardCount(), byID: make(map[string]*node), from: n, version: shards.GetVersion()}
	t.leaders, t.told = make([]atomic.Pointer[node], t.shards+1), make([]string, t.shards+1)
	if shards.GetChanges() {
		copy(t.told, c.learner.known.Load().told)
	}
	for _, m := range cluster.GetMembers() {
		if m.GetNodeId() == cluster.GetNodeId() {
			continue // the node may be reachable at a different address
		}
		if at := c.nodeAt(m.GetAddress()); at != nil {
			at.name(m.GetNodeId())
			t.byID[m.GetNodeId()] = at
		}
	}
	if keys := cluster.GetShardKeys(); len(keys) > 0 {
		t.keys = make(map[string]ShardKey, len(keys))
		for _, k := range keys {
			t.keys[k.GetEntityType()] = ShardKey{Group: k.GetGroup(), Until: k.GetUntil()}
		}
	}
	n.name(cluster.GetNodeId())
	t.byID[cluster.GetNodeId()] = n
	for _, s := range shards.GetShards() {
		if s.GetShardId() > 0 && s.GetShardId() <= t.shards {
			t.told[s.GetShardId()] = s.GetLeader()
		}
	}
	for i, leader := range t.told {
		t.leaders[i].Store(t.byID[leader])
	}
	c.learner.known.Store(t)
}

// nodeAt returns the node at an address, or nil if there is none.
func (c *Client) nodeAt(address string) *node {
	base, err := c.memberURL(address)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := *c.nodes.Load()
	for _, n := range nodes {
		if n.url == base {
			return n
		}
	}
	if len(nodes) >= maxNodes {
		return nil
	}
	n := c.newNode(base)
	grown := append(append(make([]*node, 0, len(nodes)+1), nodes...), n)
	c.nodes.Store(&grown)
	return n
}

// target returns the node for a call about r, and the position of the rotation.
func (c *Client) target(r route) (n *node, at uint32) {
	n, at = c.current()
	t := c.learner.known.Load()
	shard := t.shard(r)
	if leader := t.leader(shard); leader != nil {
		n = leader
	}
	if t != nil && shard == 0 && r.entityID != "" {
		c.learner.stale.Store(true) // the type is newer than the topology
	}
	return n, at
}

// noteFailure moves on from a node that did not serve a request. reached means
// that the node answered.
func (c *Client) noteFailure(r route, n *node, at uint32, reached bool) {
	if !reached {
		n.avoid()
	}
	t := c.learner.known.Load()
	t.forgetLeader(t.shard(r), n)
	c.learner.stale.Store(true)
	if now, _ := c.current(); now == n {
		c.next(at)
	}
}
