package rpctest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/clusterapi"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// Cluster is three nodes with four shards and a coordinator that executes
// operations one at a time: Step executes the next operation. It implements
// clusterapi.View, clusterapi.Admin, clusterapi.Levels, clusterapi.Initializer,
// clusterapi.Policies and clusterapi.Settings. Its methods are safe for
// concurrent use.
type Cluster struct {
	mu       sync.Mutex
	members  []clusterapi.Member
	shards   []clusterapi.Shard
	moves    []move // operations that are accepted and not yet executed
	settings map[string]clusterapi.Setting
	revision uint64
	changed  chan struct{}
	policy   clusterapi.Policy
	err      error // returned by every call if not nil
	founding clusterapi.BootstrapProgress
	ordered  int // number of calls of Initialize
	pending  []*clusterv1.PendingOperation
}

// move transfers a shard's leadership to a member or, if shard is 0, removes
// the member.
type move struct {
	shard sharding.ShardID
	to    sharding.NodeID
}

// NewCluster returns a cluster in which n1 leads shards 1 and 4, n2 leads shard
// 2 and n3 leads shard 3.
func NewCluster() *Cluster {
	c := &Cluster{settings: make(map[string]clusterapi.Setting), changed: make(chan struct{}), founding: clusterapi.BootstrapProgress{Cluster: "c1"},
		policy: clusterapi.Policy{Replication: 3, MinMembers: 1, Rebalance: true, DeadAfter: 5 * time.Minute}}
	for i, id := range []sharding.NodeID{"n1", "n2", "n3"} {
		c.members = append(c.members, clusterapi.Member{
			ID: id, Address: fmt.Sprintf("127.0.0.1:%d", i+1), Status: "up", Reachable: true, Roles: []string{"host"}, Replicas: 4, Version: "test",
		})
	}
	for i, leader := range []sharding.NodeID{"n1", "n2", "n3", "n1"} {
		c.shards = append(c.shards, clusterapi.Shard{
			ID: sharding.ShardID(i + 1), Leader: leader, Term: 2, Voters: []sharding.NodeID{"n1", "n2", "n3"}, Applied: 9,
		})
	}
	return c
}

// Fail makes every call return err. Nil lets calls succeed again.
func (c *Cluster) Fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

// Step executes the next operation. It returns false if there is none.
func (c *Cluster) Step() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.moves) == 0 {
		return false
	}
	m := c.moves[0]
	c.moves = c.moves[1:]
	if m.shard == 0 {
		c.members = slices.DeleteFunc(c.members, func(member clusterapi.Member) bool { return member.ID == m.to && member.Status == "leaving" })
		return true
	}
	sh := &c.shards[m.shard-1]
	sh.Leader = m.to
	sh.Term++
	return true
}

// Pend sets the operations that the cluster reports as pending.
func (c *Cluster) Pend(orders ...*clusterv1.PendingOperation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = orders
}

// Overview implements clusterapi.View.
func (c *Cluster) Overview(context.Context) (clusterapi.Overview, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	members := slices.Clone(c.members)
	for i := range members {
		for _, sh := range c.shards {
			if sh.Leader == members[i].ID {
				members[i].Leaders++
			}
		}
	}
	return clusterapi.Overview{Members: members, Coordinator: "n1", Quorum: true, ShardCount: uint32(len(c.shards)), Policy: c.policy, PendingOperations: c.pending}, c.err
}

// Leaders implements clusterapi.View.
func (c *Cluster) Leaders() []sharding.NodeID {
	shards, _ := c.Shards(context.Background())
	out := make([]sharding.NodeID, len(shards)+1)
	for _, s := range shards {
		out[s.ID] = s.Leader
	}
	return out
}

// Shards implements clusterapi.View.
func (c *Cluster) Shards(context.Context) ([]clusterapi.Shard, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.shards), c.err
}

func (c *Cluster) member(id sharding.NodeID) (*clusterapi.Member, error) {
	for i := range c.members {
		if c.members[i].ID == id {
			return &c.members[i], c.err
		}
	}
	return nil, clusterapi.ErrUnknownNode
}

// MoveShard implements clusterapi.Admin.
func (c *Cluster) MoveShard(_ context.Context, shard sharding.ShardID, to sharding.NodeID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.member(to)
	switch {
	case err != nil:
		return err
	case shard == 0 || int(shard) > len(c.shards):
		return clusterapi.ErrUnknownShard
	case m.Status != "up":
		return &status.RefusedError{Reason: fmt.Sprintf("%s is %s", to, m.Status)}
	}
	c.moves = append(c.moves, move{shard, to})
	return nil
}

// Drain implements clusterapi.Admin.
func (c *Cluster) Drain(_ context.Context, node sharding.NodeID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.empty(node, "draining")
}

// Resume implements clusterapi.Admin.
func (c *Cluster) Resume(_ context.Context, node sharding.NodeID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.member(node)
	if err == nil {
		m.Status = "up"
	}
	return err
}

// Leave implements clusterapi.Admin.
func (c *Cluster) Leave(_ context.Context, node sharding.NodeID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.empty(node, "leaving"); err != nil {
		return err
	}
	c.moves = append(c.moves, move{to: node})
	return nil
}

// empty sets a member's status, and transfers the leadership of every shard
// that it leads to the first member that is up.
func (c *Cluster) empty(node sharding.NodeID, status string) error {
	m, err := c.member(node)
	if err != nil {
		return err
	}
	m.Status = status
	for _, sh := range c.shards {
		if to := (slices.IndexFunc(c.members, func(m clusterapi.Member) bool { return m.Status == "up" })); sh.Leader == node && to >= 0 {
			c.moves = append(c.moves, move{sh.ID, c.members[to].ID})
		}
	}
	return nil
}

// Down implements clusterapi.Admin.
func (c *Cluster) Down(_ context.Context, node sharding.NodeID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	m, err := c.member(node)
	if err == nil {
		m.Status, m.Reachable = "down", false
	}
	return err
}

// Rebalance implements clusterapi.Admin. It transfers the last shard to n2.
func (c *Cluster) Rebalance(context.Context) (uint32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moves = append(c.moves, move{4, "n2"})
	return 1, c.err
}

// Found sets the bootstrap state that Initialize reports, and returns the
// number of calls of Initialize.
func (c *Cluster) Found(f clusterapi.BootstrapProgress) (ordered int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.founding = f
	return c.ordered
}

// Initialize implements clusterapi.Initializer.
func (c *Cluster) Initialize() (clusterapi.BootstrapProgress, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ordered++
	return c.founding, c.err
}

// FinalizeUpgrade implements clusterapi.Levels. Every member supports cluster
// versions 1 and 2.
func (c *Cluster) FinalizeUpgrade(_ context.Context, level sharding.ClusterVersion, dryRun bool) (clusterapi.UpgradeReport, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := clusterapi.UpgradeReport{Version: 1, Target: max(level, 1)}
	for _, m := range c.members {
		n := clusterapi.NodeVersions{Node: m.ID, Release: m.Version, Supported: sharding.VersionRange{Min: 1, Max: 2}}
		if !n.Supported.Contains(r.Target) {
			n.Obstacle = fmt.Sprintf("node %s supports %v", m.ID, n.Supported)
		}
		r.Nodes = append(r.Nodes, n)
	}
	if c.err != nil || dryRun {
		return r, c.err
	}
	if n := r.Nodes[0]; n.Obstacle != "" {
		return r, &status.RefusedError{Reason: n.Obstacle}
	}
	r.Version = r.Target
	return r, nil
}

// SetPolicy implements clusterapi.Policies.
func (c *Cluster) SetPolicy(_ context.Context, change clusterapi.PolicyChange) (clusterapi.Policy, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if change.Replication != nil {
		c.policy.Replication = *change.Replication
	}
	if change.MinMembers != nil {
		c.policy.MinMembers = *change.MinMembers
	}
	if change.Rebalance != nil {
		c.policy.Rebalance = *change.Rebalance
	}
	if change.DeadAfter != nil {
		c.policy.DeadAfter = *change.DeadAfter
	}
	c.policy.Stored = true
	return c.policy, c.err
}

// Get implements clusterapi.Settings.
func (c *Cluster) Get(_ context.Context, key string) (clusterapi.Setting, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.settings[key]
	if !ok && c.err == nil {
		return s, clusterapi.ErrUnknownSetting
	}
	return s, c.err
}

// List implements clusterapi.Settings.
func (c *Cluster) List(prefix string) ([]clusterapi.Setting, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []clusterapi.Setting
	for _, s := range c.settings {
		if strings.HasPrefix(s.Key, prefix) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b clusterapi.Setting) int { return cmp.Compare(a.Key, b.Key) })
	return out, c.revision, c.err
}

// Put implements clusterapi.Settings.
func (c *Cluster) Put(_ context.Context, key, value string) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.revision++
	if c.settings[key] = (clusterapi.Setting{Key: key, Value: value, Revision: c.revision}); value == "" {
		delete(c.settings, key)
	}
	close(c.changed)
	c.changed = make(chan struct{})
	return c.revision, nil
}

// Changed implements clusterapi.Settings.
func (c *Cluster) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}
