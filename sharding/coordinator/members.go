package coordinator

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// placeBatch bounds the shards that one command places.
const placeBatch = 512

// members moves members on in their lives.
func (s *stepView) members() {
	for _, n := range s.nodes {
		switch {
		case n.Status == meta.StatusJoining && n.fresh && s.follows(n):
			s.setStatus(n, meta.StatusUp)
		case n.Status == meta.StatusDown && !n.Downed && n.fresh:
			if s.follows(n) {
				s.setStatus(n, meta.StatusUp)
			}
		case n.Status != meta.StatusDown && s.dead(n):
			s.setStatus(n, meta.StatusDown)
		case (n.Status == meta.StatusLeaving || n.Status == meta.StatusDown) && !s.holds(n):
			s.command(meta.RemoveMember(n.Node))
		}
	}
	for id, h := range s.Coordinator.nodes {
		if s.now.Sub(h.at) <= s.opts.Fresh && s.outside(id, h.report.Incarnation) {
			s.plan.Rejoin = append(s.plan.Rejoin, id)
		}
	}
	slices.Sort(s.plan.Rejoin)
}

func (s *stepView) setStatus(n *node, status meta.MemberStatus) {
	s.command(meta.SetStatus(n.Node, n.Incarnation, status))
}

func (s *stepView) command(c []byte) { s.plan.Commands = append(s.plan.Commands, c) }

// follows says whether the node's replica of the metadata shard is in its group
// and up to date.
func (s *stepView) follows(n *node) bool {
	for _, sh := range s.shards {
		if sh.Shard == sharding.MetaShard {
			r, ok := sh.On(n.Node)
			return ok && r.State != meta.ReplicaLeaving && sh.caughtUp(r.ID)
		}
	}
	return false
}

// dead says whether the node has been out of reach for too long. A coordinator
// that hears less than a majority of the hosts may be what is cut off, and
// takes nobody for dead. Nor does it a node that another one hears: it serves
// and votes, and the cut is between it and the coordinator.
func (s *stepView) dead(n *node) bool {
	since, silent := s.silent[n.Node]
	if !silent || s.now.Sub(since) < s.policy.DeadAfter {
		return false
	}
	heard := 0
	for _, h := range s.nodes {
		if h.host() && h.reachable {
			heard++
		}
	}
	return heard > s.hosts/2 && !slices.ContainsFunc(s.nodes, func(o *node) bool { return o.hears(n.Node) })
}

// hears says whether the node reports now that it hears the other one.
func (n *node) hears(other sharding.NodeID) bool {
	return n.fresh && n.Node != other && n.host() && slices.Contains(n.heard.report.Heard, other)
}

// holds says whether any replica is placed on the node, lost ones included.
func (s *stepView) holds(n *node) bool {
	return slices.ContainsFunc(s.shards, func(sh *shard) bool {
		return slices.ContainsFunc(sh.Replicas, func(r meta.Replica) bool { return r.Node == n.Node })
	})
}

// outside says whether a node that reports has no part in the metadata shard
// any more, or runs in a start that has not joined.
func (s *stepView) outside(id sharding.NodeID, incarnation uint64) bool {
	n := s.byID[id]
	if n == nil || n.Incarnation < incarnation {
		return true
	}
	if n.Status == meta.StatusLeaving || n.Downed || n.Incarnation != incarnation {
		return false
	}
	p, _ := s.view.Placement(sharding.MetaShard)
	r, ok := p.On(id)
	return !ok || r.State == meta.ReplicaLeaving
}

// place gives the shards that were never placed their full voter sets, once
// enough hosts are there.
func (s *stepView) place() {
	able := 0
	for _, n := range s.nodes {
		if n.able() {
			able++
		}
	}
	cluster, _ := s.view.Cluster()
	if able == 0 || able < s.policy.MinMembers {
		return
	}
	votes := odd(min(able, s.policy.Replication))
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

// spare returns the first of the shard's learners that could vote: those on
// nodes that may lead, then the least crowded zones, then the smaller ids
// first.
func (s *stepView) spare(sh *shard, n int) []sharding.ReplicaID {
	ripe := slices.Clone(sh.ripe)
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
