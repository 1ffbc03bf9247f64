package coordinator

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// placeBatch is the maximum number of shards that one command places.
const placeBatch = 512

// updateMembers makes the status changes of members.
func (s *stepView) updateMembers() {
	for _, n := range s.nodes {
		switch {
		case n.Status == meta.StatusJoining && n.fresh && s.isFollowing(n):
			s.setStatus(n, meta.StatusUp)
		case n.Status == meta.StatusDown && !n.Downed && n.fresh:
			if s.isFollowing(n) {
				s.setStatus(n, meta.StatusUp)
			}
		case n.Status != meta.StatusDown && s.isDead(n):
			s.setStatus(n, meta.StatusDown)
		case (n.Status == meta.StatusLeaving || n.Status == meta.StatusDown) && !s.hasReplicas(n):
			s.command(meta.RemoveMember(n.Node))
		}
	}
	for id, h := range s.Coordinator.reports {
		if s.now.Sub(h.at) <= s.opts.Fresh && s.isOutsider(id, h.report.Incarnation) {
			s.plan.Rejoin = append(s.plan.Rejoin, id)
		}
	}
	slices.Sort(s.plan.Rejoin)
}

func (s *stepView) setStatus(n *node, status meta.MemberStatus) {
	s.command(meta.SetStatus(n.Node, n.Incarnation, status))
}

func (s *stepView) command(c []byte) { s.plan.Commands = append(s.plan.Commands, c) }

// isFollowing reports whether the node's replica of the metadata shard is a
// member of its group and caught up.
func (s *stepView) isFollowing(n *node) bool {
	for _, sh := range s.shards {
		if sh.Shard == sharding.MetaShard {
			r, ok := sh.ReplicaOn(n.Node)
			return ok && r.State != meta.ReplicaLeaving && sh.isCaughtUp(r.ID)
		}
	}
	return false
}

// isDead reports whether the node has been unreachable for too long. A
// coordinator that reaches less than a majority of the storage nodes may be
// partitioned itself, and considers no node dead. If another node can reach the
// node, it is not dead either: it serves and votes, and only its link to the
// coordinator is broken.
func (s *stepView) isDead(n *node) bool {
	since, silent := s.unreachableSince[n.Node]
	if !silent || s.now.Sub(since) < s.policy.DeadAfter {
		return false
	}
	heard := 0
	for _, h := range s.nodes {
		if h.canHost() && h.reachable {
			heard++
		}
	}
	return heard > s.hosts/2 && !slices.ContainsFunc(s.nodes, func(o *node) bool { return o.hears(n.Node) })
}

// hears reports whether the node currently reports that it can reach the other
// node.
func (n *node) hears(other sharding.NodeID) bool {
	return n.fresh && n.Node != other && n.canHost() && slices.Contains(n.latest.report.Reachable, other)
}

// hasReplicas reports whether any replica is placed on the node, including lost
// replicas.
func (s *stepView) hasReplicas(n *node) bool {
	return slices.ContainsFunc(s.shards, func(sh *shard) bool {
		return slices.ContainsFunc(sh.Replicas, func(r meta.Replica) bool { return r.Node == n.Node })
	})
}

// isOutsider reports whether a reporting node no longer belongs to the metadata
// shard, or has not joined since it started.
func (s *stepView) isOutsider(id sharding.NodeID, incarnation uint64) bool {
	n := s.byID[id]
	if n == nil || n.Incarnation < incarnation {
		return true
	}
	if n.Status == meta.StatusLeaving || n.Downed || n.Incarnation != incarnation {
		return false
	}
	p, _ := s.view.Placement(sharding.MetaShard)
	r, ok := p.ReplicaOn(id)
	return !ok || r.State == meta.ReplicaLeaving
}

// placeShards places all shards that have never been placed, with a full set of
// voters, as soon as enough storage nodes are available.
func (s *stepView) placeShards() {
	able := 0
	for _, n := range s.nodes {
		if n.canTake() {
			able++
		}
	}
	cluster, _ := s.view.Cluster()
	if able == 0 || able < s.policy.MinMembers {
		return
	}
	votes := oddVoters(min(able, s.policy.Replication))
	var batch []meta.PlaceOn
	for id := sharding.ShardID(1); uint32(id) <= cluster.Shards; id++ {
		if _, placed := s.view.Placement(id); placed {
			continue
		}
		on := s.opts.Strategy.Allocate(s.state, nil, votes)
		if len(on) < votes {
			break
		}
		s.state.AddShard(newShard(id, on))
		batch = append(batch, meta.PlaceOn{Shard: id, Nodes: on})
		if len(batch) == placeBatch {
			s.command(meta.Place(batch...))
			batch = nil
		}
	}
	if len(batch) > 0 {
		s.command(meta.Place(batch...))
	}
}

// promotionCandidates returns up to n of the shard's promotable learners: first
// learners on nodes that are not draining, then learners in zones with fewest
// voters of the shard, then learners on nodes with smaller ids.
func (s *stepView) promotionCandidates(sh *shard, n int) []sharding.ReplicaID {
	ripe := slices.Clone(sh.promotable)
	slices.SortFunc(ripe, func(a, b meta.Replica) int { return cmp.Compare(a.Node, b.Node) })
	zones := map[string]int{}
	for _, r := range sh.Replicas {
		if m := s.byID[r.Node]; m != nil && r.State == meta.ReplicaVoter && m.Zone != "" && !slices.Contains(sh.badVoters, r) {
			zones[m.Zone]++
		}
	}
	var out []sharding.ReplicaID
	for len(out) < n && len(ripe) > 0 {
		best := 0
		for i, r := range ripe {
			n, found := s.byID[r.Node], s.byID[ripe[best].Node]
			if n.Draining == found.Draining && zones[n.Zone] < zones[found.Zone] || !n.Draining && found.Draining {
				best = i
			}
		}
		if z := s.byID[ripe[best].Node].Zone; z != "" {
			zones[z]++
		}
		out = append(out, ripe[best].ID)
		ripe = slices.Delete(ripe, best, best+1)
	}
	return out
}
