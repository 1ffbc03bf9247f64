package cluster

import (
	"time"

	"context"
	"maps"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
)

// ClusterView is the state of the whole cluster according to the coordinator.
// It is about half a second old, or older if there is no coordinator. It is
// immutable.
type ClusterView struct {
	Shards map[sharding.ShardID]ShardState
	Nodes  map[sharding.NodeID]NodeState
	// Pending are the accepted orders that are not yet carried out.
	Pending []coordinator.Pending
}

// Sizes returns the shards of the view with their sizes, as last reported to
// the coordinator. If the coordinator cannot be asked, it uses the last known
// sizes.
func (m *Member) Sizes(ctx context.Context) map[sharding.ShardID]ShardState {
	sizes, err := m.askSizes(ctx)
	if err != nil {
		m.opts.Logger.Debug("cannot read the sizes of shards", "error", err)
	} else if len(sizes) > 0 {
		known := make(map[sharding.ShardID]*peerv1.ShardSize, len(sizes))
		for _, s := range sizes {
			known[sharding.ShardID(s.GetShardId())] = s
		}
		m.sizes.Store(&known)
	}
	known := m.sizes.Load()
	out := maps.Clone(m.ClusterView().Shards)
	for id, s := range out {
		if size := (*known)[id]; size != nil {
			s.Entities, s.Bytes, s.Applied = size.GetEntities(), size.GetBytes(), size.GetApplied()
			out[id] = s
		}
	}
	return out
}

func (m *Member) askSizes(ctx context.Context) ([]*peerv1.ShardSize, error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	if _, leads := m.opts.Metadata.Leads(); leads {
		return m.coord.sizes()
	}
	leader, known := m.opts.Metadata.Leader()
	if !known {
		return nil, m.opts.Metadata.notLeader()
	}
	return m.opts.Peers.Sizes(ctx, leader)
}

// ShardState is a shard as its leader reported it. A view contains its size
// only if the coordinator runs a release that sends sizes with every change.
type ShardState struct {
	Leader           sharding.NodeID // empty if none is known
	Term             sharding.Term
	Voters, Learners []sharding.ReplicaID
	Entities         uint64
	Applied          uint64
	Bytes            uint64
}

// NodeState is a node as it reported itself.
type NodeState struct {
	Reachable bool
	Replicas  uint32
	Draining  bool // the node transfers all its leaderships
	Full      bool // the node's disk has no room for more data
	// Skew is how far the node's clock is ahead of the median of the nodes
	// that it hears from.
	Skew time.Duration
	// Impairment is why the balancer gives the node no leaderships. It is
	// nil if the balancer may give the node leaderships.
	Impairment *Impairment
	// Stopped are the shards whose replica on the node has stopped or is
	// disputed.
	Stopped map[sharding.ShardID]sharding.StopReason
}

// Impairment describes a node that is slow or unstable.
type Impairment struct {
	Slow     bool          // the node's leaderships were moved away because it was slow
	Until    time.Time     // end of the penalty; zero while the node is slow
	Cooldown time.Duration // how long it must be stable before the penalty ends
	// Damages counts the node's replicas that were damaged again after they
	// had been rebuilt; 0 if the penalty has another cause.
	Damages int
}

func impairmentFromWire(t *peerv1.Impairment) *Impairment {
	if t == nil {
		return nil
	}
	out := &Impairment{Slow: t.GetSlow(), Cooldown: time.Duration(t.GetCooldownMillis()) * time.Millisecond, Damages: int(t.GetDamageCount())}
	if at := t.GetUntilUnixMillis(); at != 0 {
		out.Until = time.UnixMilli(at)
	}
	return out
}

// with returns the view updated by an answer of the coordinator, which contains
// the whole view or a delta.
func (p *ClusterView) with(r *peerv1.ReportResponse) *ClusterView {
	next := &ClusterView{Shards: map[sharding.ShardID]ShardState{}, Nodes: map[sharding.NodeID]NodeState{}}
	if r.GetChanges() {
		next.Shards = maps.Clone(p.Shards)
		if len(r.GetNodes()) == 0 {
			next.Nodes, next.Pending = p.Nodes, p.Pending
		}
	}
	p = next
	if len(r.GetNodes()) > 0 {
		p.Pending = pendingFromWire(r.GetPending())
	}
	for _, s := range r.GetShards() {
		if s.GetLeader() == "" {
			delete(p.Shards, sharding.ShardID(s.GetShardId()))
			continue
		}
		p.Shards[sharding.ShardID(s.GetShardId())] = ShardState{
			Leader: sharding.NodeID(s.GetLeader()), Term: sharding.Term(s.GetTerm()),
			Voters: replicas(s.GetVoters()), Learners: replicas(s.GetLearners()),
			Entities: s.GetEntities(), Applied: s.GetApplied(), Bytes: s.GetBytes(),
		}
	}
	for _, n := range r.GetNodes() {
		state := NodeState{Reachable: n.GetReachable(), Replicas: n.GetReplicas(), Draining: n.GetDraining(), Full: n.GetFull(), Skew: time.Duration(n.GetSkewMillis()) * time.Millisecond, Impairment: impairmentFromWire(n.GetImpairment())}
		for _, s := range n.GetStopped() {
			if state.Stopped == nil {
				state.Stopped = map[sharding.ShardID]sharding.StopReason{}
			}
			why := peer.StopReason(s.GetReason())
			if s.GetReason() == peerv1.StopReason_STOP_REASON_DISPUTED {
				why = sharding.Disputed
			}
			state.Stopped[sharding.ShardID(s.GetShardId())] = why
		}
		p.Nodes[sharding.NodeID(n.GetNodeId())] = state
	}
	return p
}
