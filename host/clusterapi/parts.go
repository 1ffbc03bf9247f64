package clusterapi

import (
	"log/slog"
	"time"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Parts are the parts of a node that the ClusterService is answered
// from. All but Now are required.
type Parts struct {
	Self       sharding.NodeID
	ClusterID  string
	ShardCount uint32             // of data shards
	Policy     meta.Policy        // by the node's own flags
	Describe   func() meta.Member // this node as a member
	SaveLevel  func(sharding.ClusterVersion) error
	Now        func() time.Time // the wall clock; nil is time.Now
	CaughtUp   func() bool      // with the metadata that the cluster had at the start
	Measure    func() *Sample   // what the node has counted until now

	Metadata *cluster.Metadata
	Member   *cluster.Member
	Control  *cluster.Control
	Peers    *peer.Peers
	Leaders  *cluster.Leaders
	Raft     *raftgroup.Loop
	Machine  *eventlog.Machine
	Judge    *cluster.ConsistencyChecker
	Logger   *slog.Logger
}

// Open fills the parts in.
func (p *Parts) Open(from Parts) {
	*p = from
	if p.Now == nil {
		p.Now = time.Now
	}
}

// Options are those that the parts answer, with f for Initialize. The parts may
// be opened later, before the first call that needs them.
func (p *Parts) Options(f Initializer) Options {
	return Options{
		View: localView{p}, Admin: localAdmin{p}, Levels: versions{p}, Founder: f, Policies: policyStore{p}, Settings: settingStore{p}, Roles: roleStore{p}, Counters: counters{p},
	}
}

// counters implements Counters.
type counters struct{ *Parts }

func (c counters) Counted() *Sample { return c.Measure() }
