package coordinator

import (
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// transfers moves all leaderships away from nodes that are about to stop,
// drained, leaving, declared down by an operator, or slow. Leaderships that an
// operator moved to a slow node stay. Leadership of the metadata shard is
// transferred only after operations of this step have been written, so that the
// next coordinator knows about them.
func (s *stepView) transfers() {
	for _, sh := range s.shards {
		if sh.lead == nil || sh.Shard == sharding.MetaShard && s.writesOperation {
			continue
		}
		slow := sh.leader.evicted && s.pinnedLeaders[sh.Shard] != sh.leader.Node
		if !slow && !sh.leader.mustNotLead() {
			if sh.Shard == sharding.MetaShard {
				s.yieldMetaShard(sh)
			}
			continue
		}
		if heir := s.transferTarget(sh); heir != nil {
			s.transferLeadership(sh, heir)
		}
	}
}

// The coordinator transfers the metadata shard to another node if it has been
// unable to reach a node for yieldAfter, although other nodes reach that node.
const yieldAfter = 5 * time.Second

// yieldMetaShard transfers the metadata shard to a node that reaches storage
// nodes which this node has not reached for a while. A node that is
// disconnected only from the coordinator still serves, but it cannot be given
// replicas or leaderships, and does not see metadata changes. The new
// coordinator must reach more storage nodes than this node, so that leadership
// does not move back and forth between nodes that each reach a different
// subset.
func (s *stepView) yieldMetaShard(sh *shard) {
	var best *node
	most := 0
	for _, n := range s.nodes {
		if n.canHost() && n.linked {
			most++
		}
	}
	for _, heir := range s.transferTargets(sh) {
		hears, missed := 1, false
		for _, n := range s.nodes {
			if !n.canHost() || !heir.hears(n.Node) {
				continue
			}
			hears++
			since, silent := s.unreachableSince[n.Node]
			missed = missed || silent && s.now.Sub(since) >= yieldAfter
		}
		if missed && !heir.unsteady && hears > most {
			best, most = heir, hears
		}
	}
	if best != nil {
		s.transferLeadership(sh, best)
	}
}

// mustNotLead reports whether the node should lead nothing.
func (n *node) mustNotLead() bool {
	return n.draining || n.Draining || n.full || n.Status == meta.StatusLeaving || n.Status == meta.StatusDown
}

// transferLeadership requests a transfer to the node, unless a transfer was
// requested already. The node must be one of the transfer targets.
func (s *stepView) transferLeadership(sh *shard, to *node) {
	if _, asked := s.pendingTransfers[sh.Shard]; asked || sh.lead == nil || to == sh.leader {
		return
	}
	s.pendingTransfers[sh.Shard] = pendingTransfer{to: to.Node, term: sh.lead.Term, at: s.now}
	sh.leader.leads--
	to.leads++
	s.plan.Transfers = append(s.plan.Transfers, Transfer{Shard: sh.Shard, From: sh.leader.Node, To: to.Node})
}

// countLed counts the shards that the node leads, and how many of them have
// another voter.
func (s *stepView) countLed(id sharding.NodeID) (all, movable int) {
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

// countPossiblyLed counts the shards that a node without a current report may
// be leading: it was the last known leader, or no leader has reported since
// this coordinator started.
func (s *stepView) countPossiblyLed(n *node) (shards int, first *shard) {
	if n.fresh {
		return 0, nil
	}
	for _, sh := range s.shards {
		r, on := sh.ReplicaOn(n.Node)
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
