package clusterapi

import (
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// member is this node as a member of its cluster.
type member interface{ Describe() meta.Member }

// Parts are the parts of a node with which it implements the ClusterService.
// All except Now are required.
type Parts struct {
	Self       sharding.NodeID
	ClusterID  string
	ShardCount uint32      // number of data shards
	Policy     meta.Policy // policy from the node's own flags
	Node       member
	Identity   *datadir.Record
	Now        func() time.Time // the wall clock; nil is time.Now
	CaughtUp   *atomic.Bool     // the metadata has caught up with the cluster's state at the time when this node started
	Counters   Counters         // counters of the node

	Metadata    *cluster.Metadata
	Member      *cluster.Member
	Control     *cluster.Control
	Peers       *peer.Peers
	Leaders     *cluster.Leaders
	Raft        *raftgroup.Loop
	Machine     *eventlog.Machine
	Consistency *cluster.ConsistencyChecker
	Logger      *slog.Logger
}

// Open sets the parts.
func (p *Parts) Open(from Parts) {
	*p = from
	if p.Now == nil {
		p.Now = time.Now
	}
}

// Options returns the options that the parts implement, with f for
// InitializeCluster. The parts may be opened later, before the first call that needs them.
func (p *Parts) Options(f Initializer) Options {
	return Options{
		View: localView{p}, Admin: localAdmin{p}, Upgrades: versions{p}, Bootstrapper: f, Policies: policyStore{p}, Settings: settingStore{p}, Roles: roleStore{p}, Counters: counters{p},
	}
}

// counters are the counters of a node whose parts may be opened later.
type counters struct{ *Parts }

func (c counters) Sample() *Sample { return c.Counters.Sample() }

// Nodes gives the leader proxy the leaders of shards, and clients of other
// nodes.
func (p *Parts) Nodes() leaderproxy.Nodes { return localNodes{p} }

// localNodes implements leaderproxy.Nodes.
type localNodes struct{ *Parts }

func (n localNodes) Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool) {
	return n.Leaders.Leader(shard)
}
func (n localNodes) Quorum(shard sharding.ShardID) bool              { return n.Leaders.Quorum(shard) }
func (n localNodes) Missing(shard sharding.ShardID) sharding.Missing { return n.Leaders.Missing(shard) }
func (n localNodes) Hears(node sharding.NodeID) bool                 { return n.Peers.IsAlive(node) }
func (n localNodes) Changed() <-chan struct{}                        { return n.Leaders.Changed() }
func (n localNodes) Client(node sharding.NodeID) (client *http.Client, baseURL string, err error) {
	return n.Peers.Client(node)
}
