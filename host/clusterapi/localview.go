package clusterapi

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/telemetry"
	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// localView describes the cluster. Members and placement come from the
// metadata, shards with a replica on this node from that replica, and all other
// shards from the coordinator's last report.
type localView struct{ *Parts }

func (s localView) Overview(context.Context) (Overview, error) {
	o := Overview{ShardCount: s.ShardCount, ClusterID: s.ClusterID, ClusterVersion: s.Metadata.ClusterVersion(), Quorum: s.Parts.Leaders.Quorum(sharding.MetaShard)}
	policy, stored := cluster.PolicyOf(s.Metadata.View(), s.Policy)
	o.Policy = shownPolicy(policy, stored)
	if leader, known := s.Metadata.Leader(); known {
		o.Coordinator = leader
	} else {
		o.Quorum = false
	}
	leaders, replicas := map[sharding.NodeID]uint32{}, map[sharding.NodeID]uint32{}
	// Do not ask other nodes for the sizes of shards: a caller that looks for
	// leaders while nodes have failed would have to wait for the coordinator.
	shards, err := s.shards(func() map[sharding.ShardID]cluster.ShardState { return s.Member.ClusterView().Shards })
	if err != nil {
		return o, err
	}
	view := s.Metadata.View()
	for _, sh := range shards {
		leaders[sh.Leader]++
		p, _ := view.Placement(sh.ID)
		for _, r := range p.Replicas {
			if !r.Lost {
				replicas[r.Node]++
			}
		}
	}
	for _, b := range view.Activations() {
		o.ShardKeys = append(o.ShardKeys, ShardKey{EntityType: b.EntityType, Rule: b.ShardKey})
	}
	for _, p := range s.Member.ClusterView().Pending {
		o.PendingOperations = append(o.PendingOperations, &clusterv1.PendingOperation{Kind: string(p.Kind), NodeId: string(p.Node), ShardId: uint32(p.Shard), Remaining: uint32(p.Remaining), Reason: p.Reason})
	}
	for _, m := range s.listMembers(view) {
		member := Member{
			ID: m.Node, Address: m.Address, PeersAt: m.PeerEndpoint(), Status: string(m.Status), Roles: m.Roles, Version: m.Version, Zone: m.Zone, Draining: m.Draining, Skew: s.Member.ClusterView().Nodes[m.Node].Skew, Speaks: m.Speaks,
			Reachable: m.Node == s.Self || m.Status == statusWeaklyUp || s.Peers.IsAlive(m.Node), Leaders: leaders[m.Node], Replicas: replicas[m.Node],
		}
		if said, heard := s.Peers.Speaks(m.Node); heard {
			member.Speaks = said
		}
		member.Impairment = impairmentOf(s.Member.ClusterView().Nodes[m.Node])
		if m.Node == s.Self {
			member.Speaks = sharding.SupportedVersions
			self := s.Node.Describe()
			if view.ClusterVersion() < sharding.VersionPeerAddress {
				self.PeerAddress = ""
			}
			member.Address, member.PeersAt, member.Version = self.Address, self.PeerEndpoint(), telemetry.Version()
		}
		if len(member.Roles) == 0 {
			member.Roles = []string{"host"}
		}
		o.Members = append(o.Members, member)
	}
	return o, nil
}

// impairmentOf returns why a node is not given leaderships; nil if it may get
// them.
func impairmentOf(n cluster.NodeState) *clusterv1.Impairment {
	if n.Impairment == nil && !n.Full {
		return nil
	}
	out := &clusterv1.Impairment{DiskFull: n.Full}
	if t := n.Impairment; t != nil {
		out.Slow, out.Cooldown, out.DamageCount = t.Slow, unlessZero(t.Cooldown), uint32(t.Damages)
		if !t.Until.IsZero() {
			out.Until = timestamppb.New(t.Until)
		}
	}
	return out
}

// statusWeaklyUp is the status shown for a node that asks for admission and
// cannot be admitted now. The metadata has no such status, because it does not
// know the node.
const statusWeaklyUp meta.MemberStatus = "weakly_up"

// listMembers returns the nodes to show, by id. These are the applicants and
// the members, except this node if it has left but cannot read that in its
// metadata.
func (s localView) listMembers(view *meta.View) []meta.Member {
	out := slices.Clone(view.Members())
	if s.Member.HasLeft() {
		out = slices.DeleteFunc(out, func(m meta.Member) bool { return m.Node == s.Self })
	}
	for _, m := range s.Control.Applicants(view) {
		m.Status = statusWeaklyUp
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b meta.Member) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

func (s localView) Shards(ctx context.Context) ([]Shard, error) {
	return s.shards(func() map[sharding.ShardID]cluster.ShardState { return s.Member.Sizes(ctx) })
}

// shards describes all shards. A shard with a replica on this node is described
// from that replica, and any other shard from the result of reported.
func (s localView) shards(reported func() map[sharding.ShardID]cluster.ShardState) ([]Shard, error) {
	view := s.Metadata.View()
	statuses, err := s.Raft.Statuses()
	if err != nil {
		return nil, err
	}
	here := make(map[sharding.ShardID]cluster.ShardState, len(statuses))
	aside := map[sharding.ShardID]cluster.ShardState{} // shards whose replica has stopped; used only if there is no other source
	for _, st := range statuses {
		applied, _ := s.Machine.Applied(st.Shard)
		node, _ := view.ReplicaNode(st.Shard, st.Leader)
		here[st.Shard] = cluster.ShardState{
			Leader: node, Term: st.Term, Voters: st.Voters, Learners: st.Learners,
			Entities: s.Machine.Entities(st.Shard), Applied: applied, Bytes: s.Machine.Bytes(st.Shard),
		}
		if st.Shard == sharding.MetaShard { // the metadata shard stores no records, so the size of its log is shown
			s := here[st.Shard]
			s.Bytes = uint64(st.Bytes)
			here[st.Shard] = s
		}
		if st.Stopped != sharding.NotStopped {
			aside[st.Shard] = here[st.Shard]
			delete(here, st.Shard)
		}
	}
	var elsewhere map[sharding.ShardID]cluster.ShardState
	if len(here) <= int(s.ShardCount) {
		elsewhere = reported()
	}
	stopped := s.stoppedReplicas(statuses)
	out := make([]Shard, 0, s.ShardCount+1)
	for id := sharding.MetaShard; id <= sharding.ShardID(s.ShardCount); id++ {
		state, ok := here[id]
		if !ok {
			if state, ok = elsewhere[id]; !ok {
				state = aside[id]
			}
		}
		if len(state.Voters) == 0 { // no leader is known here
			state.Voters = votersOf(view, id)
		}
		sh := Shard{
			ID: id, Leader: state.Leader, Term: state.Term, Entities: state.Entities, Applied: state.Applied, Bytes: state.Bytes,
			Voters: nodesOf(view, id, state.Voters, false), Learners: nodesOf(view, id, state.Learners, false), Lost: nodesOf(view, id, state.Voters, true),
			Stopped: stopped[id],
		}
		out = append(out, sh)
	}
	return out, nil
}

// Leaders implements View.
func (s localView) Leaders() []sharding.NodeID {
	out := make([]sharding.NodeID, s.ShardCount+1)
	for id := range out {
		out[id], _, _ = s.Parts.Leaders.Leader(sharding.ShardID(id))
	}
	return out
}

// votersOf returns the voters of a shard according to the metadata. It includes
// replicas that are being removed, because they vote until a leader removes
// them.
func votersOf(view *meta.View, shard sharding.ShardID) (ids []sharding.ReplicaID) {
	placement, _ := view.Placement(shard)
	for _, r := range placement.Replicas {
		if r.State != meta.ReplicaLearner {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// nodesOf returns the nodes of a shard's replicas whose disk is lost if lost
// is set, and the nodes of the other replicas otherwise. Raft counts lost
// replicas until they are replaced, although no node has them.
func nodesOf(view *meta.View, shard sharding.ShardID, ids []sharding.ReplicaID, lost bool) []sharding.NodeID {
	placement, _ := view.Placement(shard)
	var out []sharding.NodeID
	for _, id := range ids {
		if r, ok := placement.Replica(id); ok && r.Lost == lost {
			out = append(out, r.Node)
		}
	}
	return out
}

// stoppedReplicas returns the replicas of the cluster that have stopped or are
// disputed. This node's replicas come from statuses, the replicas of other
// nodes from the coordinator's last report.
func (s localView) stoppedReplicas(statuses []raftgroup.Status) map[sharding.ShardID][]StoppedReplica {
	out := map[sharding.ShardID][]StoppedReplica{}
	add := func(shard sharding.ShardID, node sharding.NodeID, why sharding.StopReason) {
		out[shard] = append(out[shard], StoppedReplica{Node: node, Reason: why})
	}
	for i := range statuses {
		switch st := &statuses[i]; {
		case st.Stopped != sharding.NotStopped:
			add(st.Shard, s.Self, st.Stopped)
		case s.Consistency.Refuses(st.Shard) != nil:
			add(st.Shard, s.Self, sharding.Disputed)
		}
	}
	for node, state := range s.Member.ClusterView().Nodes {
		for shard, why := range state.Stopped {
			if node != s.Self {
				add(shard, node, why)
			}
		}
	}
	for _, replicas := range out {
		slices.SortFunc(replicas, func(a, b StoppedReplica) int { return cmp.Compare(a.Node, b.Node) })
	}
	return out
}
