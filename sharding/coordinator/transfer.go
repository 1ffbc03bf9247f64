package coordinator

import (
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// transfers moves leaderships away from nodes that are about to stop, that are
// drained, that leave, that an operator put down, or that are slow: all of
// them, at once. What an operator moved to a node that is slow stays there.
// That of the metadata shard waits until the operation for it is written down:
// whoever coordinates next has to know of it.
func (s *stepView) transfers() {
	for _, sh := range s.shards {
		if sh.lead == nil || sh.Shard == sharding.MetaShard && s.writes {
			continue
		}
		slow := sh.leader.evicted && s.pins[sh.Shard] != sh.leader.Node
		if !slow && !sh.leader.outgoing() {
			if sh.Shard == sharding.MetaShard {
				s.yield(sh)
			}
			continue
		}
		if heir := s.heir(sh); heir != nil {
			s.handOver(sh, heir)
		}
	}
}

// yieldAfter is how long a node must be out of the coordinator's reach, and in
// that of others, before another one coordinates.
const yieldAfter = 5 * time.Second

// yield hands the metadata shard over to a node that hears hosts which this one
// has not heard for a while. A node that is cut from the coordinator alone
// serves, but it can be given nothing and hears of no change of the metadata.
// The heir has to hear more hosts than this node, so that leaderships do not go
// to and fro between nodes that each hear another part.
func (s *stepView) yield(sh *shard) {
	var best *node
	most := 0
	for _, n := range s.nodes {
		if n.host() && n.linked {
			most++
		}
	}
	for _, heir := range s.heirs(sh) {
		hears, missed := 1, false
		for _, n := range s.nodes {
			if !n.host() || !heir.hears(n.Node) {
				continue
			}
			hears++
			since, silent := s.silent[n.Node]
			missed = missed || silent && s.now.Sub(since) >= yieldAfter
		}
		if missed && !heir.unsteady && hears > most {
			best, most = heir, hears
		}
	}
	if best != nil {
		s.handOver(sh, best)
	}
}

// outgoing says that the node is to lead nothing.
func (n *node) outgoing() bool {
	return n.draining || n.Draining || n.full || n.Status == meta.StatusLeaving || n.Status == meta.StatusDown
}

// handOver asks the leader to hand over to the node, unless it was asked to
// already. The caller knows that the node is among the heirs.
func (s *stepView) handOver(sh *shard, to *node) {
	if _, asked := s.moving[sh.Shard]; asked || sh.lead == nil || to == sh.leader {
		return
	}
	s.moving[sh.Shard] = handover{to: to.Node, term: sh.lead.Term, at: s.now}
	sh.leader.leads--
	to.leads++
	s.plan.Transfers = append(s.plan.Transfers, Transfer{Shard: sh.Shard, From: sh.leader.Node, To: to.Node})
}

// leading counts the shards that the node leads, and those of them that some
// other node votes in too.
func (s *stepView) leading(id sharding.NodeID) (all, movable int) {
	for _, sh := range s.shards {
		if sh.lead == nil || sh.leader.Node != id {
			continue
		}
		all++
		if sh.voters > 1 {
			movable++
		}
	}
	return all, movable
}

// unseen counts the shards that a node which is not heard may lead: it said so
// last, or nobody has said since this coordinator began who does.
func (s *stepView) unseen(n *node) (shards int, first *shard) {
	if n.fresh {
		return 0, nil
	}
	for _, sh := range s.shards {
		r, on := sh.On(n.Node)
		last := s.leaders[sh.Shard]
		if sh.lead != nil || !on || r.State != meta.ReplicaVoter || last != nil && last.report.Node != n.Node {
			continue
		}
		if shards++; first == nil {
			first = sh
		}
	}
	return shards, first
}
