package coordinator

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// transfers moves leaderships away from nodes that are about to stop, that are
// drained, that leave, or that an operator put down: all of them, at once. That
// of the metadata shard waits until the order for it is written down: whoever
// coordinates next has to know of it.
func (s *scene) transfers() {
	for _, sh := range s.shards {
		if sh.lead == nil || !sh.leader.outgoing() || sh.Shard == sharding.MetaShard && s.writes {
			continue
		}
		if heirs := s.heirs(sh); len(heirs) > 0 {
			s.handOver(sh, slices.MinFunc(heirs, func(a, b *node) int {
				return cmp.Or(cmp.Compare(a.leads, b.leads), cmp.Compare(a.Node, b.Node))
			}))
		}
	}
}

// outgoing says that the node is to lead nothing.
func (n *node) outgoing() bool {
	return n.draining || n.Draining || n.Status == meta.StatusLeaving || n.Status == meta.StatusDown
}

// handOver asks the leader to hand over to the node, unless it was asked to
// already. The caller knows that the node is among the heirs.
func (s *scene) handOver(sh *shard, to *node) {
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
func (s *scene) leading(id sharding.NodeID) (all, movable int) {
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
