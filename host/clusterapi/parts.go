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

// Parts are the parts of a node with which it implements the ClusterService. All
// are required except Now.
type Parts struct {
	Self               sharding.NodeID
	ClusterID          string
	ShardCount         uint32             // number of data shards
	Policy             meta.Policy        // from the node's own flags
	Describe           func() meta.Member // this node as a member
	SaveClusterVersion func(sharding.ClusterVersion) error
	Now                func() time.Time // the wall clock; nil is time.Now
	CaughtUp           func() bool      // with the metadata that the cluster had when the node started
	Measure            func() *Sample   // the current values of the node's counters

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

// Options returns the options that the parts implement, with f for Initialize.
// The parts may be opened later, before the first call that needs them.
func (p *Parts) Options(f Initializer) Options {
	return Options{
		View: localView{p}, Admin: localAdmin{p}, Levels: versions{p}, Bootstrapper: f, Policies: policyStore{p}, Settings: settingStore{p}, Roles: roleStore{p}, Counters: counters{p},
	}
}

// counters implements Counters.
type counters struct{ *Parts }

func (c counters) Sample() *Sample { return c.Measure() }
