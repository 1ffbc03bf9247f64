package cluster

import (
	"cmp"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
)

const (
	// keepReports is how long a node that does not report stays in the view.
	keepReports = 5 * time.Second
	// keepNodes is how long the nodes of a view are valid without new reports,
	// because nodes may become suspected meanwhile.
	keepNodes = time.Second
)

// viewChanges is the cluster view that the coordinator sends to nodes. It
// records for every shard the number of its last change, so that a node that
// has the view as of some change receives only later changes. Sizes are not
// part of the view, because under load they change all the time and are
// rarely asked for.
type viewChanges struct {
	shards  map[sharding.ShardID]shardView
	nodes   []*peerv1.NodeState // ordered by id
	pending []*peerv1.PendingOperation
	changes uint32    // number of the last change; the first is 1
	noded   uint32    // the change that set nodes and pending
	at      time.Time // when nodes was computed
	stale   bool      // nodes must be recomputed
}

// shardView is a shard in the view. A shard that lost its leader stays with an
// empty leader, so that nodes that know the old leader learn of the loss.
type shardView struct {
	state  *peerv1.ShardState // not modified
	change uint32
}

// take replaces the previous report of a node, before, with its new report, o.
func (p *viewChanges) take(before, o observed) {
	if p.shards == nil {
		p.shards = map[sharding.ShardID]shardView{}
	}
	p.stale = true
	p.changes++
	changed := false
	leads := make(map[sharding.ShardID]bool, len(o.Shards))
	for i := range o.Shards {
		if r := &o.Shards[i]; r.Leader {
			leads[r.Shard] = true
			changed = p.set(r.Shard, o.Node, shardState(o.Node, r)) || changed
		}
	}
	for i := range before.Shards {
		if id := before.Shards[i].Shard; !leads[id] {
			changed = p.clear(id, o.Node) || changed
		}
	}
	if !changed {
		p.changes--
	}
}

// set records the state that the leader of a shard reported, unless a different
// node reported it in a higher term. It returns whether the view changed.
func (p *viewChanges) set(id sharding.ShardID, node sharding.NodeID, s *peerv1.ShardState) bool {
	old := p.shards[id].state
	if old.GetLeader() != "" && old.GetLeader() != string(node) && old.GetTerm() >= s.GetTerm() || proto.Equal(old, s) {
		return false
	}
	p.shards[id] = shardView{s, p.changes}
	return true
}

// clear records that the node no longer leads a shard. It returns whether the
// view changed.
func (p *viewChanges) clear(id sharding.ShardID, node sharding.NodeID) bool {
	if p.shards[id].state.GetLeader() != string(node) {
		return false
	}
	p.shards[id] = shardView{&peerv1.ShardState{ShardId: uint32(id)}, p.changes}
	return true
}

// leave clears the shards led by a node that has not reported for a long
// time.
func (p *viewChanges) leave(o observed) {
	p.take(o, observed{Report: coordinator.Report{Node: o.Node}})
}

func shardState(node sharding.NodeID, r *coordinator.ShardReport) *peerv1.ShardState {
	return &peerv1.ShardState{
		ShardId: uint32(r.Shard), Leader: string(node), Term: uint64(r.Term), Voters: numbers(r.Voters), Learners: numbers(r.Learners),
	}
}

// show adds the view to an answer: the changes since known if the node accepts
// a delta, otherwise the whole view, or only its number if the node has it
// already. l.mu must be held.
func (l *leading) show(out *peerv1.ReportResponse, known uint64, changes bool) {
	p, now := &l.viewChanges, time.Now()
	if p.stale || now.Sub(p.at) >= keepNodes {
		l.takeNodes(now)
	}
	epoch := uint64(l.term) << 32
	if out.Picture = epoch | uint64(p.changes); known == out.Picture {
		return
	}
	out.Nodes, out.Pending, out.Changes = p.nodes, p.pending, changes && known>>32 == uint64(l.term) && known < out.Picture
	since := uint32(0)
	if out.Changes {
		since = uint32(known)
		if p.noded <= since {
			out.Nodes, out.Pending = nil, nil
		}
	}
	for id, s := range p.shards {
		switch {
		case s.change <= since:
		case changes:
			out.Shards = append(out.Shards, s.state)
		case s.state.GetLeader() != "": // older releases expect the sizes with the shard
			whole := proto.CloneOf(s.state)
			size := l.latest[sharding.NodeID(whole.GetLeader())].sizes[id]
			whole.Entities, whole.Bytes, whole.Applied = size.entities, size.bytes, size.applied
			out.Shards = append(out.Shards, whole)
		}
	}
	slices.SortFunc(out.Shards, func(a, b *peerv1.ShardState) int { return cmp.Compare(a.GetShardId(), b.GetShardId()) })
}

// takeNodes recomputes the nodes of the view. l.mu must be held.
func (l *leading) takeNodes(now time.Time) {
	p := &l.viewChanges
	var nodes []*peerv1.NodeState
	for node, a := range l.latest {
		fresh := now.Sub(a.at) < keepReports
		if !fresh {
			p.leave(a.observed)
		}
		state := nodeState(&a, fresh && l.m.isAlive(node))
		state.Impairment = l.impairment(node)
		nodes = append(nodes, state)
	}
	slices.SortFunc(nodes, func(a, b *peerv1.NodeState) int { return cmp.Compare(a.GetNodeId(), b.GetNodeId()) })
	pending := pendingToWire(l.pending)
	p.at, p.stale = now, false
	if slices.EqualFunc(nodes, p.nodes, func(a, b *peerv1.NodeState) bool { return proto.Equal(a, b) }) &&
		slices.EqualFunc(pending, p.pending, func(a, b *peerv1.PendingOperation) bool { return proto.Equal(a, b) }) {
		return
	}
	p.changes++
	p.nodes, p.pending, p.noded = nodes, pending, p.changes
}

func pendingToWire(pending []coordinator.Pending) []*peerv1.PendingOperation {
	out := make([]*peerv1.PendingOperation, len(pending))
	for i, p := range pending {
		out[i] = &peerv1.PendingOperation{Kind: string(p.Kind), NodeId: string(p.Node), ShardId: uint32(p.Shard), Remaining: uint32(p.Remaining), Reason: p.Reason}
	}
	return out
}

func pendingFromWire(pending []*peerv1.PendingOperation) []coordinator.Pending {
	out := make([]coordinator.Pending, len(pending))
	for i, p := range pending {
		out[i] = coordinator.Pending{Kind: coordinator.PendingKind(p.GetKind()), Node: sharding.NodeID(p.GetNodeId()), Shard: sharding.ShardID(p.GetShardId()), Remaining: int(p.GetRemaining()), Reason: p.GetReason()}
	}
	return out
}

func nodeState(a *arrival, reachable bool) *peerv1.NodeState {
	out := &peerv1.NodeState{NodeId: string(a.Node), Reachable: reachable, Replicas: a.Replicas, Draining: a.Draining, Full: a.Full, SkewMillis: a.skew.Milliseconds()}
	for i := range a.Shards {
		r := &a.Shards[i]
		why := r.Stopped
		if why == sharding.NotStopped && r.Disputed {
			why = sharding.Disputed
		}
		if why != sharding.NotStopped {
			out.Stopped = append(out.Stopped, &peerv1.StoppedReplica{ShardId: uint32(r.Shard), Reason: peerv1.StopReason(why)})
		}
	}
	return out
}

// impairment returns the coordinator's penalty for a node, or nil.
func (l *leading) impairment(node sharding.NodeID) *peerv1.Impairment {
	i := slices.IndexFunc(l.impairments, func(t coordinator.Impairment) bool { return t.Node == node })
	if i < 0 {
		return nil
	}
	t := l.impairments[i]
	out := &peerv1.Impairment{Slow: t.Slow, CooldownMillis: uint64(t.Cooldown.Milliseconds()), DamageCount: uint32(t.Damages)}
	if !t.Until.IsZero() {
		out.UntilUnixMillis = t.Until.UnixMilli()
	}
	return out
}

// sizes returns the sizes of all shards as their leaders last reported them.
func (l *leading) sizes() ([]*peerv1.ShardSize, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leads() {
		return nil, l.m.opts.Metadata.notLeader()
	}
	out := make([]*peerv1.ShardSize, 0, len(l.viewChanges.shards))
	for id, s := range l.viewChanges.shards {
		if size, told := l.latest[sharding.NodeID(s.state.GetLeader())].sizes[id]; told {
			out = append(out, &peerv1.ShardSize{ShardId: uint32(id), Entities: size.entities, Bytes: size.bytes, Applied: size.applied})
		}
	}
	return out, nil
}
