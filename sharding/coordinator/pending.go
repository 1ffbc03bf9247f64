package coordinator

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// PendingKind says what kind of order is pending.
type PendingKind string

// The orders that take time.
const (
	PendingReplication PendingKind = "replication" // shards have other replicas than the policy wants
	PendingLeave       PendingKind = "leave"
	PendingDown        PendingKind = "down"
	PendingDrain       PendingKind = "drain"
	PendingMove        PendingKind = "move"
	PendingRebalance   PendingKind = "rebalance"
)

// PendingKinds are all of them.
var PendingKinds = []PendingKind{PendingReplication, PendingLeave, PendingDown, PendingDrain, PendingMove, PendingRebalance}

// Pending is an order that was accepted and is not carried out yet. It is made
// from the metadata and the reports, so every coordinator finds the same ones;
// only moves and rebalancing end with the coordinator that took them.
type Pending struct {
	Kind  PendingKind
	Node  sharding.NodeID  // that the order names; empty if it names none
	Shard sharding.ShardID // of a move
	// Remaining counts the shards that the order still has to change; at least 1.
	Remaining int
	// Reason says what holds the order up, or what is being done.
	Reason string
}

// findPending lists the orders that are not carried out yet: the policy's, then
// those about nodes by name, then those about shards.
func (s *stepView) findPending() {
	s.plan.Pending = append(s.plan.Pending, s.pendingReplication()...)
	for _, n := range s.nodes {
		if p, ok := s.pendingOf(n); ok {
			s.plan.Pending = append(s.plan.Pending, p)
		}
	}
	for _, o := range s.operations {
		switch o.Kind {
		case OperationMove:
			p := Pending{Kind: PendingMove, Node: o.Node, Shard: o.Shard, Remaining: 1, Reason: "the leadership is being transferred"}
			if sh, n := s.shard(o.Shard), s.byID[o.Node]; n != nil && !n.works() {
				p.Reason = fmt.Sprintf("the coordinator hears nothing of node %s", o.Node)
			} else if sh != nil {
				if r, holds := sh.On(o.Node); sh.lead == nil || !holds || r.State != meta.ReplicaVoter {
					p.Reason = s.holdUp(sh)
				}
			}
			s.plan.Pending = append(s.plan.Pending, p)
		case OperationRebalance:
			p := Pending{Kind: PendingRebalance, Remaining: s.building + len(s.moving), Reason: "replicas are being copied and leaderships transferred"}
			if p.Remaining == 0 && s.unrest != "" {
				p.Remaining, p.Reason = 1, s.unrest
			}
			if p.Remaining > 0 {
				s.plan.Pending = append(s.plan.Pending, p)
			}
		}
	}
}

// pendingReplication counts the shards that have other replicas than the policy
// wants. A cluster of one member has nowhere to put more, and is told nothing.
func (s *stepView) pendingReplication() []Pending {
	if len(s.nodes) < 2 {
		return nil
	}
	p := Pending{Kind: PendingReplication}
	var first *shard
	for _, sh := range s.shards {
		want := s.policy.Replication
		if sh.index >= 0 && sh.copies == want && sh.voters == odd(want) && len(sh.badVoters) == 0 ||
			sh.index < 0 && sh.voters == odd(want) && len(sh.badVoters) == 0 {
			continue
		}
		if p.Remaining++; first == nil || sh.lead == nil && first.lead != nil {
			first = sh
		}
	}
	if first == nil {
		return nil
	}
	p.Reason = s.holdUp(first)
	return []Pending{p}
}

// pendingOf is what was ordered of the node and is not done.
func (s *stepView) pendingOf(n *node) (Pending, bool) {
	p := Pending{Node: n.Node}
	switch {
	case n.Status == meta.StatusLeaving, n.Leaving:
		p.Kind = PendingLeave
	case n.Status == meta.StatusDown:
		p.Kind = PendingDown
	case n.Draining:
		p.Kind = PendingDrain
		for _, sh := range s.shards {
			if sh.lead == nil || sh.leader != n {
				continue
			}
			if p.Remaining++; p.Remaining == 1 || s.heir(sh) == nil {
				p.Reason = "leaderships are being transferred"
				if s.heir(sh) == nil {
					p.Reason = fmt.Sprintf("no other voter of shard %d can lead it now", sh.Shard)
				}
			}
		}
		if unseen, sh := s.unseen(n); unseen > 0 {
			p.Remaining += unseen
			p.Reason = s.leaderless(sh)
		}
		return p, p.Remaining > 0
	default:
		return p, false
	}
	var first *shard
	for _, sh := range s.shards {
		// A lost replica too: the node is a member until its shard is without it.
		if !slices.ContainsFunc(sh.Replicas, func(r meta.Replica) bool { return r.Node == n.Node }) {
			continue
		}
		if p.Remaining++; first == nil || first.index < 0 || sh.lead == nil && first.lead != nil {
			first = sh
		}
	}
	if first == nil {
		p.Remaining, p.Reason = 1, "its replicas are gone, it is being removed from the members"
		return p, true
	}
	if p.Reason = s.closedHost(first); p.Reason == "" {
		p.Reason = s.holdUp(first)
	}
	return p, true
}

// holdUp says what keeps a shard from having the replicas that it should have.
func (s *stepView) holdUp(sh *shard) string {
	building := slices.ContainsFunc(sh.Replicas, func(r meta.Replica) bool {
		n := s.byID[r.Node]
		return r.State == meta.ReplicaLearner && !r.Lost && n != nil && n.host() && !sh.caughtUp(r.ID) && sh.index >= 0
	})
	missing := sh.copies < s.policy.Replication || len(sh.badVoters) > 0
	switch {
	case sh.lead == nil:
		return s.leaderless(sh)
	case building:
		return fmt.Sprintf("a replica of shard %d is being copied", sh.Shard)
	case missing && s.hosts < s.policy.Replication:
		return fmt.Sprintf("replication %d needs %d storage nodes that are up, there are %d: add nodes or lower it", s.policy.Replication, s.policy.Replication, s.hosts)
	case missing && sh.index >= 0 && s.rejectedOn(sh) != "":
		return fmt.Sprintf("replicas on node %s were damaged again and again: look at its disk and memory, then 'hostd node resume' it", s.rejectedOn(sh))
	case missing && sh.index >= 0 && len(s.allocate(sh, 1)) == 0:
		return fmt.Sprintf("no other node can take a replica of shard %d: nodes are full, draining or cannot read its log", sh.Shard)
	case missing && s.busy():
		return fmt.Sprintf("shard %d waits until fewer replicas are being copied", sh.Shard)
	}
	return fmt.Sprintf("the members of shard %d are being changed", sh.Shard)
}

// closedHost says why a host that is up and holds no replica of the shard is given
// none, if no other one takes it and the shard has fewer than there are hosts for:
// a node that leaves has to wait for it, whatever the replication.
func (s *stepView) closedHost(sh *shard) string {
	if sh.lead == nil || sh.index < 0 || sh.copies >= s.copies() || len(s.allocate(sh, 1)) > 0 {
		return ""
	}
	for _, n := range s.nodes {
		if _, on := sh.On(n.Node); on || !n.host() {
			continue
		}
		why := ""
		switch {
		case !n.linked || !n.fresh:
			why = "is not heard by the coordinator"
		case n.Draining:
			why = fmt.Sprintf("is drained: 'hostd node resume %s'", n.Node)
		case n.draining:
			why = "is about to stop, or cannot lead"
		case n.full:
			why = "has a full disk"
		case n.rejected:
			why = fmt.Sprintf("damages its replicas: look at its disk and memory, then 'hostd node resume %s'", n.Node)
		case n.behind:
			why = "cannot read the logs of its shards, which a later release wrote"
		default:
			continue
		}
		return fmt.Sprintf("node %s could take a replica of shard %d, but it %s", n.Node, sh.Shard, why)
	}
	return ""
}

// leaderless says why no leader of the shard is known. One that the coordinator
// does not hear may lead on: the others hear it.
func (s *stepView) leaderless(sh *shard) string {
	if lost := sh.LostMajority(); len(lost) > 0 {
		return (&sharding.NotLeaderError{Shard: sh.Shard, Missing: sharding.Missing{Lost: lost}}).Error()
	}
	if last := s.leaders[sh.Shard]; last != nil {
		if n := s.byID[last.report.Node]; n != nil && !n.fresh {
			return fmt.Sprintf("the coordinator hears nothing of node %s, which led shard %d last", n.Node, sh.Shard)
		}
	}
	return fmt.Sprintf("shard %d has no leader: a majority of its voters must answer", sh.Shard)
}

// rejectedOn is the first node that could hold a replica of the shard but gets
// none, because it damages them; empty if another node can take one.
func (s *stepView) rejectedOn(sh *shard) sharding.NodeID {
	if len(s.allocate(sh, 1)) > 0 {
		return ""
	}
	for _, n := range s.nodes {
		if n.host() && n.rejected {
			return n.Node
		}
	}
	return ""
}
