package cluster

import (
	"context"
	"maps"
	"slices"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// observed is a node's report: the input of the coordinator's decisions, and
// what operators see.
type observed struct {
	coordinator.Report
	sizes map[sharding.ShardID]size // sizes of the shards that the node leads
	skew  time.Duration             // offset of the node's wall clock
}

// skewStep is the resolution of the reported skew. A finer value would change
// all the time, and each change would cause a new report.
const skewStep = 100 * time.Millisecond

// coarse rounds a duration down to a power of two of milliseconds.
func coarse(d time.Duration) time.Duration {
	if d < time.Millisecond {
		return 0
	}
	ms := time.Duration(1)
	for 2*ms*time.Millisecond <= d {
		ms *= 2
	}
	return ms * time.Millisecond
}

// size is the size of a shard on this node at an applied index.
type size struct{ entities, bytes, applied uint64 }

// observe creates the report about the replicas of this node.
func (m *Member) observe(view *meta.View, statuses []raftgroup.Status) observed {
	o := observed{sizes: map[sharding.ShardID]size{}}
	o.Node, o.Incarnation, o.Replicas = m.opts.Node, m.opts.Peers.Incarnation(), uint32(len(statuses))
	o.Draining, o.Full = m.draining.Load() || !m.opts.Condition.Able(), m.opts.Condition.Full()
	o.Pace, o.skew = coarse(m.opts.Condition.Pace()), m.opts.Condition.Skew().Round(skewStep)
	for _, member := range view.Members() {
		if m.isAlive(member.Node) {
			o.Reachable = append(o.Reachable, member.Node)
		}
	}
	for i := range statuses {
		st := &statuses[i]
		p, _ := view.Placement(st.Shard)
		if !coordinator.MustReport(p, st.Self) && st.Stopped == sharding.NotStopped && !m.opts.Condition.Disputed(st.Shard) {
			continue
		}
		r := coordinator.ShardReport{
			Shard: st.Shard, Replica: st.Replica, Term: st.Term, Leader: st.Self,
			Commit: st.Commit, Applied: st.Applied, Last: st.Last,
			Voters: st.Voters, Learners: st.Learners, Outgoing: st.Outgoing, Stopped: st.Stopped, Disputed: m.opts.Condition.Disputed(st.Shard),
		}
		if st.Self {
			r.Match = st.Match
			entities, bytes := m.opts.Machine.Entities(st.Shard), m.opts.Machine.Bytes(st.Shard)
			o.sizes[st.Shard] = size{entities, bytes, st.Applied}
		}
		o.Shards = append(o.Shards, r)
	}
	return o
}

// sent is the last report that was answered. The next report may refer to it.
type sent struct {
	observed
	to          sharding.NodeID // empty if the next report must be whole
	clusterView uint64          // version of the view in the answer
}

// report sends reports to the coordinator until ctx ends: at once when kicked,
// and otherwise every reportPeriod.
func (m *Member) report(ctx context.Context) {
	if !m.awaitAdmission(ctx) {
		return
	}
	every, rest := time.NewTicker(reportPeriod), time.NewTimer(0)
	defer every.Stop()
	defer rest.Stop()
	for {
		m.reportOnce(ctx)
		rest.Reset(reportRest)
		select {
		case <-rest.C:
		case <-ctx.Done():
			return
		}
		select {
		case <-m.reportNow:
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

func (m *Member) reportOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	// Read the view's index first, so that the statuses include what was done
	// because of that view.
	converged, view := m.converged.Load(), m.opts.Metadata.View()
	statuses, err := m.opts.Raft.Statuses()
	if err != nil {
		return // the node is stopping
	}
	o := m.observe(view, statuses)
	m.seq++
	o.View, o.Seq = converged, m.seq
	leader, known := m.opts.Metadata.Leader()
	if _, leads := m.opts.Metadata.Leads(); leads {
		leader = m.opts.Node
	} else if !known || leader == m.opts.Node {
		return
	}
	last, asked := m.sent, time.Now().UnixNano()
	m.sent.to = "" // the next report must be whole, unless this one is answered
	same := last.to == leader && last.clusterView != 0 && o.equals(last.observed)
	var r *peerv1.ReportResponse
	if leader == m.opts.Node {
		r, err = m.coord.take(o, same, last.clusterView, true)
	} else {
		r, err = m.opts.Peers.Report(ctx, leader, reportToWire(o, same, last.clusterView))
	}
	if err != nil {
		m.opts.Logger.Debug("the coordinator did not accept the report", "leader", leader, "error", err)
		if isExcluded(err) {
			m.noteOutside()
		}
		return
	}
	m.sent = sent{o, leader, last.clusterView}
	if r.GetWhole() {
		m.sent.to = ""
		wake(m.reportNow)
		return
	}
	m.applyReport(r)
	m.answered.Store(asked)
}

// equals reports whether two reports of one incarnation are equal except for
// Seq.
func (o *observed) equals(b observed) bool {
	return o.View == b.View && o.Replicas == b.Replicas && o.Draining == b.Draining && o.Full == b.Full && o.Pace == b.Pace && o.skew == b.skew && slices.Equal(o.Reachable, b.Reachable) && maps.Equal(o.sizes, b.sizes) &&
		slices.EqualFunc(o.Shards, b.Shards, func(a, b coordinator.ShardReport) bool {
			return a.Shard == b.Shard && a.Replica == b.Replica && a.Term == b.Term && a.Leader == b.Leader &&
				a.Commit == b.Commit && a.Applied == b.Applied && a.Last == b.Last && a.Stopped == b.Stopped && a.Disputed == b.Disputed && maps.Equal(a.Match, b.Match) &&
				slices.Equal(a.Voters, b.Voters) && slices.Equal(a.Learners, b.Learners) && slices.Equal(a.Outgoing, b.Outgoing)
		})
}

// applyReport executes the coordinator's requests and stores its view of the cluster.
func (m *Member) applyReport(r *peerv1.ReportResponse) {
	m.transferLeaders(r.GetTransfers())
	if r.GetOutside() {
		m.noteOutside()
	}
	if number := r.GetPicture(); number != 0 && number == m.sent.clusterView {
		return
	}
	m.sent.clusterView = r.GetPicture()
	p := m.ClusterView().with(r)
	m.clusterView.Store(p)
	m.opts.Observer.OnClusterView(p)
}

// noteOutside records that the coordinator does not list this node in the metadata
// shard's group. The member then finds out what happened.
func (m *Member) noteOutside() {
	if !m.left.Load() {
		m.outside.Store(true)
		wake(m.kick)
	}
}

// transferLeaders transfers the requested leaderships that this node holds.
func (m *Member) transferLeaders(transfers []*peerv1.Transfer) {
	view := m.opts.Metadata.View()
	for _, t := range transfers {
		shard := sharding.ShardID(t.GetShardId())
		p, _ := view.Placement(shard)
		to, there := p.ReplicaOn(sharding.NodeID(t.GetTo()))
		if !there || sharding.NodeID(t.GetFrom()) != m.opts.Node {
			continue
		}
		m.opts.Logger.Info("transferring the leadership of a shard", "shard_id", t.GetShardId(), "to", t.GetTo())
		if err := m.opts.Raft.TransferLeader(shard, to.ID); err != nil {
			m.opts.Logger.Debug("cannot transfer the leadership of a shard", "shard_id", t.GetShardId(), "to", t.GetTo(), "error", err)
		}
	}
}

// reportToWire encodes a report. If same is set, the report equals the last
// one, and reportToWire omits what the receiver has.
func reportToWire(o observed, same bool, clusterView uint64) *peerv1.ReportRequest {
	if same {
		return &peerv1.ReportRequest{
			NodeId: string(o.Node), Incarnation: o.Incarnation, Seq: o.Seq, View: o.View, Same: true, Picture: clusterView, PictureChanges: true,
		}
	}
	out := peer.EncodeReport(o.Report)
	out.SkewMillis = o.skew.Milliseconds()
	out.Picture, out.PictureChanges = clusterView, true
	for _, s := range out.GetShards() {
		size := o.sizes[sharding.ShardID(s.GetShardId())]
		s.Entities, s.Bytes = size.entities, size.bytes
	}
	return out
}

func reportFromWire(r *peerv1.ReportRequest) observed {
	o := observed{Report: peer.DecodeReport(r), sizes: make(map[sharding.ShardID]size, len(r.GetShards())), skew: time.Duration(r.GetSkewMillis()) * time.Millisecond}
	for _, s := range r.GetShards() {
		o.sizes[sharding.ShardID(s.GetShardId())] = size{s.GetEntities(), s.GetBytes(), s.GetApplied()}
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
