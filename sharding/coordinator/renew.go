package coordinator

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// renewable says why the node's data may not be given up now; empty where it
// may. A node whose data is damaged is taken for dead, comes back with an empty
// disk and is filled by the others. So nothing is lost as long as each of its
// shards has a majority without it that is whole, and as long as no other node
// is missing meanwhile: that the metadata has this one down is what the next
// one to ask is refused for, whoever coordinates by then. A node that reports
// and has no damage did not ask: somebody else did in its name.
func (s *stepView) renewable(n *node) string {
	for _, other := range s.nodes {
		if other != n && other.Status == meta.StatusDown {
			return fmt.Sprintf("node %s is down: it comes back, or is replaced, first", other.Node)
		}
	}
	for _, sh := range s.shards {
		if slices.ContainsFunc(sh.Replicas, func(r meta.Replica) bool { return r.Lost && r.Node != n.Node }) {
			return fmt.Sprintf("shard %d has lost a replica: it is replaced first", sh.Shard)
		}
		if !slices.ContainsFunc(sh.Replicas, func(r meta.Replica) bool { return r.Node == n.Node && !r.Lost }) {
			continue
		}
		switch {
		case sh.lead == nil:
			return fmt.Sprintf("shard %d has no leader that is known", sh.Shard)
		case sh.leader == n:
			return fmt.Sprintf("the node leads shard %d", sh.Shard)
		case len(sh.lead.Outgoing) > 0:
			return fmt.Sprintf("the members of shard %d are changing", sh.Shard)
		}
		whole := 1 // the leader
		for _, other := range s.heirs(sh) {
			if other != n {
				whole++
			}
		}
		if whole <= len(sh.lead.Voters)/2 {
			return fmt.Sprintf("shard %d has no majority of voters without the node that are caught up and work", sh.Shard)
		}
	}
	if n.fresh && !n.damaged() {
		return "the node reports, and no damage"
	}
	return ""
}

// damaged says whether the node has reported a replica that stopped on damage.
func (n *node) damaged() bool {
	for _, r := range n.heard.shards {
		if r.Stopped == sharding.StopDamaged {
			return true
		}
	}
	return false
}
