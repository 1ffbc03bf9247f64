package coordinator

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// PendingKind is the kind of a pending request.
type PendingKind string

// Requests that need time.
const (
	PendingReplication PendingKind = "replication" // shards do not have the replicas required by the policy
	PendingLeave       PendingKind = "leave"
	PendingDown        PendingKind = "down"
	PendingDrain       PendingKind = "drain"
	PendingMove        PendingKind = "move"
	PendingRebalance   PendingKind = "rebalance"
)

// PendingKinds lists all kinds.
var PendingKinds = []PendingKind{PendingReplication, PendingLeave, PendingDown, PendingDrain, PendingMove, PendingRebalance}

// Pending is an accepted operator request that is not done yet. Pending
// requests are derived from the metadata and the reports, so every coordinator
// finds the same requests. Only moves and rebalancing end with the coordinator
// that accepted them.
type Pending struct {
	Kind  PendingKind
	Node  sharding.NodeID  // node of the request; empty if it has none
	Shard sharding.ShardID // shard of a move
	// Remaining is the number of shards that still have to change; at least 1.
	Remaining int
	// Reason names the obstacle to the request, or the work in progress.
	Reason string
}

// findPending lists the pending requests: first replication, then requests for
// nodes sorted by id, then requests for shards.
func (s *stepView) findPending() {
	s.plan.Pending = append(s.plan.Pending, s.pendingReplication()...)
	for _, n := range s.nodes {
		if p, ok := s.pendingForNode(n); ok {
			s.plan.Pending = append(s.plan.Pending, p)
		}
	}
	for _, o := range s.operations {
		switch o.Kind {
		case OperationMove:
			p := Pending{Kind: PendingMove, Node: o.Node, Shard: o.Shard, Remaining: 1, Reason: "the leadership is being transferred"}
			if sh, n := s.shard(o.Shard), s.byID[o.Node]; n != nil && !n.canVote() {
				p.Reason = fmt.Sprintf("the coordinator cannot reach node %s", o.Node)
			} else if sh != nil {
				if r, holds := sh.ReplicaOn(o.Node); sh.lead == nil || !holds || r.State != meta.ReplicaVoter {
					p.Reason = s.blockReason(sh)
				}
			}
			s.plan.Pending = append(s.plan.Pending, p)
		case OperationRebalance:
			p := Pending{Kind: PendingRebalance, Remaining: s.building + len(s.pendingTransfers), Reason: "replicas are being copied and leaderships transferred"}
			if p.Remaining == 0 && s.rebalanceBlocked != "" {
				p.Remaining, p.Reason = 1, s.rebalanceBlocked
			}
			if p.Remaining > 0 {
				s.plan.Pending = append(s.plan.Pending, p)
			}
		}
	}
}

// pendingReplication counts the shards that do not have the replicas required
// by the policy. With a single member there is no place for more replicas, so
// nothing is reported.
func (s *stepView) pendingReplication() []Pending {
	if len(s.nodes) < 2 {
		return nil
	}
	p := Pending{Kind: PendingReplication}
	var first *shard
	for _, sh := range s.shards {
		want := s.policy.Replication
		if sh.index >= 0 && sh.copies == want && sh.voters == oddVoters(want) && len(sh.badVoters) == 0 ||
			sh.index < 0 && sh.voters == oddVoters(want) && len(sh.badVoters) == 0 {
			continue
		}
		if p.Remaining++; first == nil || sh.lead == nil && first.lead != nil {
			first = sh
		}
	}
	if first == nil {
		return nil
	}
	p.Reason = s.blockReason(first)
	return []Pending{p}
}

// pendingForNode returns the pending request for the node, if there is one.
func (s *stepView) pendingForNode(n *node) (Pending, bool) {
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
			if p.Remaining++; p.Remaining == 1 || s.transferTarget(sh) == nil {
				p.Reason = "leaderships are being transferred"
				if s.transferTarget(sh) == nil {
					p.Reason = fmt.Sprintf("no other voter of shard %d can lead it now", sh.Shard)
				}
			}
		}
		if unseen, sh := s.countPossiblyLed(n); unseen > 0 {
			p.Remaining += unseen
			p.Reason = s.leaderlessReason(sh)
		}
		return p, p.Remaining > 0
	default:
		return p, false
	}
	var first *shard
	for _, sh := range s.shards {
		// Lost replicas count too: the node stays a member until the shard has
		// dropped them.
		if !slices.ContainsFunc(sh.Replicas, func(r meta.Replica) bool { return r.Node == n.Node }) {
			continue
		}
		if p.Remaining++; first == nil || first.index < 0 || sh.lead == nil && first.lead != nil {
			first = sh
		}
	}
	if first == nil {
		p.Remaining, p.Reason = 1, "all its replicas were moved, and it is being removed from the member list"
		return p, true
	}
	if p.Reason = s.closedHostReason(first); p.Reason == "" && p.Kind == PendingLeave {
		p.Reason = s.departureReason(first)
	}
	if p.Reason == "" {
		p.Reason = s.blockReason(first)
	}
	return p, true
}

// blockReason says why a shard does not have the replicas that it should have.
func (s *stepView) blockReason(sh *shard) string {
	building := slices.ContainsFunc(sh.Replicas, func(r meta.Replica) bool {
		n := s.byID[r.Node]
		return r.State == meta.ReplicaLearner && !r.Lost && n != nil && n.canHost() && !sh.isCaughtUp(r.ID) && sh.index >= 0
	})
	missing := sh.copies < s.policy.Replication || len(sh.badVoters) > 0
	switch {
	case sh.lead == nil:
		return s.leaderlessReason(sh)
	case building:
		return fmt.Sprintf("a replica of shard %d is being copied", sh.Shard)
	case missing && s.hosts < s.policy.Replication:
		return fmt.Sprintf("replication %d needs %d storage nodes, only %d are up: add nodes or lower the replication", s.policy.Replication, s.policy.Replication, s.hosts)
	case missing && sh.index >= 0 && s.rejectedNode(sh) != "":
		return fmt.Sprintf("replicas on node %s were repeatedly damaged: check its disk and memory, then run 'hostd node resume'", s.rejectedNode(sh))
	case missing && sh.index >= 0 && len(s.allocate(sh, 1)) == 0:
		return fmt.Sprintf("no other node can take a replica of shard %d: nodes are full, draining or cannot read its log", sh.Shard)
	case missing && s.isBusy():
		return fmt.Sprintf("shard %d is waiting for other replicas to be copied", sh.Shard)
	}
	return fmt.Sprintf("the membership of shard %d is being changed", sh.Shard)
}

// departureReason returns why a leaving node keeps its voter of the shard, if
// no other node can replace the voter.
func (s *stepView) departureReason(sh *shard) string {
	if len(sh.promotable) > 0 || sh.index >= 0 && len(s.allocate(sh, 1)) > 0 {
		return ""
	}
	return s.departureObstacle(sh)
}

// closedHostReason returns why a storage node without a replica of the shard is
// not given one. It is called for a shard that has too few replicas and that no
// other node can hold. A leaving node must wait for such a node, whatever the
// replication is.
func (s *stepView) closedHostReason(sh *shard) string {
	if sh.lead == nil || sh.index < 0 || sh.copies >= s.copies() || len(s.allocate(sh, 1)) > 0 {
		return ""
	}
	for _, n := range s.nodes {
		if _, on := sh.ReplicaOn(n.Node); on || !n.canHost() {
			continue
		}
		why := ""
		switch {
		case !n.linked || !n.fresh:
			why = "is unreachable from the coordinator"
		case n.Draining:
			why = fmt.Sprintf("is drained: run 'hostd node resume %s'", n.Node)
		case n.draining:
			why = "is about to stop, or cannot lead"
		case n.full:
			why = "has a full disk"
		case n.rejected:
			why = fmt.Sprintf("repeatedly damaged its replicas: check its disk and memory, then run 'hostd node resume %s'", n.Node)
		case n.behind:
			why = "cannot read the logs of its shards, which a later release wrote"
		default:
			continue
		}
		return fmt.Sprintf("node %s could take a replica of shard %d, but it %s", n.Node, sh.Shard, why)
	}
	return ""
}

// leaderlessReason says why no leader of the shard is known. A leader that the
// coordinator cannot reach may still lead, as long as the other voters can
// reach it.
func (s *stepView) leaderlessReason(sh *shard) string {
	if lost := sh.LostMajority(); len(lost) > 0 {
		return (&sharding.NotLeaderError{Shard: sh.Shard, Missing: sharding.Missing{Lost: lost}}).Error()
	}
	if last := s.leaders[sh.Shard]; last != nil && s.mayHaveLeader(sh) {
		if n := s.byID[last.report.Node]; n != nil && !n.fresh {
			return fmt.Sprintf("the coordinator cannot reach node %s, which last led shard %d", n.Node, sh.Shard)
		}
	}
	return fmt.Sprintf("shard %d has no leader: a majority of its voters must answer", sh.Shard)
}

// mayHaveLeader reports whether a majority of the shard's voters is on nodes that
// an operator has not declared down, so that a leader may exist that the
// coordinator does not reach.
func (s *stepView) mayHaveLeader(sh *shard) bool {
	voters, up := 0, 0
	for _, r := range sh.Replicas {
		if r.State != meta.ReplicaVoter {
			continue
		}
		voters++
		if n := s.byID[r.Node]; n != nil && n.Status != meta.StatusDown && !r.Lost {
			up++
		}
	}
	return up > voters/2
}

// rejectedNode returns the first node that could hold a replica of the shard
// but gets none because it has repeatedly damaged replicas. It returns the
// empty string if another node can hold a replica.
func (s *stepView) rejectedNode(sh *shard) sharding.NodeID {
	if len(s.allocate(sh, 1)) > 0 {
		return ""
	}
	for _, n := range s.nodes {
		if n.canHost() && n.rejected {
			return n.Node
		}
	}
	return ""
}
