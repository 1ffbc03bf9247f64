package coordinator

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// renewObstacle returns why the node's data must not be discarded now, or the
// empty string.
//
// A node with damaged data is considered dead, comes back with an empty disk
// and copies the data from other nodes. Nothing is lost as long as each of its
// shards has a healthy majority without the node, and as long as no other node
// is missing at the same time. A second node cannot be missing even if the
// coordinator changes, because the metadata records that this node is down and
// a request from the next node is rejected. If the node currently reports no
// damage, it cannot have made the request itself, so the request is rejected
// too.
func (s *stepView) renewObstacle(n *node) string {
	for _, other := range s.nodes {
		if other != n && other.Status == meta.StatusDown {
			return fmt.Sprintf("node %s is down: start it or replace it first", other.Node)
		}
	}
	for _, sh := range s.shards {
		if slices.ContainsFunc(sh.Replicas, func(r meta.Replica) bool { return r.Lost && r.Node != n.Node }) {
			return fmt.Sprintf("shard %d has lost a replica, which must be replaced first", sh.Shard)
		}
		if !slices.ContainsFunc(sh.Replicas, func(r meta.Replica) bool { return r.Node == n.Node && !r.Lost }) {
			continue
		}
		switch {
		case sh.lead == nil:
			return fmt.Sprintf("shard %d has no known leader", sh.Shard)
		case sh.leader == n:
			return fmt.Sprintf("the node leads shard %d", sh.Shard)
		case len(sh.lead.Outgoing) > 0:
			return fmt.Sprintf("the membership of shard %d is changing", sh.Shard)
		}
		whole := 1 // the leader
		for _, other := range s.transferTargets(sh) {
			if other != n {
				whole++
			}
		}
		if whole <= len(sh.lead.Voters)/2 {
			return fmt.Sprintf("without the node, shard %d has no majority of caught-up voters", sh.Shard)
		}
	}
	if n.fresh && !n.hasDamage() {
		return "the node reports no damage"
	}
	return ""
}

// hasDamage reports whether the node has reported a replica that stopped
// because of damage.
func (n *node) hasDamage() bool {
	for _, r := range n.latest.shards {
		if r.Stopped == sharding.StopDamaged {
			return true
		}
	}
	return false
}
