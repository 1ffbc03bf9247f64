package cluster

import (
	"context"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// observed is what a node tells of itself: what the coordinator decides by,
// and what people want to see.
type observed struct {
	coordinator.Report
	sizes map[sharding.ShardID]size // of the shards led
}

type size struct{ entities, bytes uint64 }

// Size tells how many entities a shard holds here and about how many bytes.
type Size func(sharding.ShardID) (entities, bytes uint64)

// observe describes the replicas of this node.
func (m *Member) observe(view *meta.View, statuses []raftgroup.Status) observed {
	o := observed{sizes: map[sharding.ShardID]size{}}
	o.Node, o.Incarnation, o.Replicas = m.opts.Node, m.opts.Incarnation, uint32(len(statuses))
	o.Draining = m.draining.Load() || !m.opts.Able()
	for i := range statuses {
		st := &statuses[i]
		p, _ := view.Placement(st.Shard)
		if !coordinator.Wanted(p, st.Self) {
			continue
		}
		r := coordinator.ShardReport{
			Shard: st.Shard, Replica: st.Replica, Term: st.Term, Leader: st.Self,
			Commit: st.Commit, Applied: st.Applied, Last: st.Last,
			Voters: st.Voters, Learners: st.Learners, Outgoing: st.Outgoing,
		}
		if st.Self {
			r.Match = st.Match
			entities, bytes := m.opts.Size(st.Shard)
			o.sizes[st.Shard] = size{entities, bytes}
		}
		o.Shards = append(o.Shards, r)
	}
	return o
}

// report tells the coordinator what this node sees until ctx ends: at once
// when kicked, every half second otherwise.
func (m *Member) report(ctx context.Context) {
	every := time.NewTicker(reportPeriod)
	defer every.Stop()
	for {
		m.reportOnce(ctx)
		select {
		case <-m.told:
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m *Member) reportOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	// In this order: the statuses show what was done by that view.
	converged, view := m.converged.Load(), m.opts.Metadata.View()
	statuses, err := m.opts.Raft.Statuses()
	if err != nil {
		return // the node stops
	}
	o := m.observe(view, statuses)
	m.seq++
	o.View, o.Seq = converged, m.seq
	if _, leads := m.opts.Metadata.Leads(); leads {
		if r, err := m.coord.take(o); err == nil {
			m.obey(view, r)
		}
		return
	}
	leader, known := m.opts.Metadata.Leader()
	if !known || leader == m.opts.Node {
		return
	}
	r, err := m.opts.Peers.Report(ctx, leader, reportToWire(o))
	if err != nil {
		m.opts.Logger.Debug("report not taken", "leader", leader, "error", err)
		return
	}
	m.obey(view, r)
}

// obey hands over the leaderships that the coordinator asks for, and keeps
// what it tells of the cluster.
func (m *Member) obey(view *meta.View, r *peerv1.ReportResponse) {
	for _, t := range r.GetTransfers() {
		shard := sharding.ShardID(t.GetShardId())
		p, _ := view.Placement(shard)
		to, there := p.On(sharding.NodeID(t.GetTo()))
		if !there || sharding.NodeID(t.GetFrom()) != m.opts.Node {
			continue
		}
		m.opts.Logger.Info("handing a leadership over", "shard_id", t.GetShardId(), "to", t.GetTo())
		if err := m.opts.Raft.TransferLeader(shard, to.ID); err != nil {
			m.opts.Logger.Debug("leadership not handed over", "shard_id", t.GetShardId(), "to", t.GetTo(), "error", err)
		}
	}
	p := pictureOf(r)
	m.picture.Store(p)
	m.opts.Told(p)
}

func reportToWire(o observed) *peerv1.ReportRequest {
	out := peer.EncodeReport(o.Report)
	for _, s := range out.GetShards() {
		size := o.sizes[sharding.ShardID(s.GetShardId())]
		s.Entities, s.Bytes = size.entities, size.bytes
	}
	return out
}

func reportFromWire(r *peerv1.ReportRequest) observed {
	o := observed{Report: peer.DecodeReport(r), sizes: make(map[sharding.ShardID]size, len(r.GetShards()))}
	for _, s := range r.GetShards() {
		o.sizes[sharding.ShardID(s.GetShardId())] = size{s.GetEntities(), s.GetBytes()}
	}
	return o
}

func numbers(ids []sharding.ReplicaID) []uint64 {
	out := make([]uint64, len(ids))
	for i, id := range ids {
		out[i] = uint64(id)
	}
	return out
}

func replicas(ids []uint64) []sharding.ReplicaID {
	out := make([]sharding.ReplicaID, len(ids))
	for i, id := range ids {
		out[i] = sharding.ReplicaID(id)
	}
	return out
}
