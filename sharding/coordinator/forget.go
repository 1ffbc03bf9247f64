package coordinator

import (
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// forgetCheck tracks the conditions under which leaving replicas of a shard may
// be forgotten.
type forgetCheck struct {
	term      sharding.Term
	changed   uint64 // Placement.Changed that the leader has seen
	last      uint64 // last log index of the leader when it first reported that value of changed
	removedAt uint64 // applied index of the leader when its membership was first without the replicas; 0 before
}

// forget drops replicas that have left their group for good. Nodes delete
// forgotten replicas, so all of the following must hold first:
//
//   - The leader has run Converge with a view in which the replicas are
//     leaving, and has applied everything that was in its log at that time.
//     Therefore no pending change adds one of the replicas back.
//   - The leader's membership does not contain them and is not a joint one.
//   - The same is true for every other voter that is not considered dead. A
//     voter that does not know of the change yet would ask the removed replicas
//     for their votes, and could be unable to win an election without them.
func (s *stepView) forget(sh *shard) {
	leaving := sh.IDs(meta.ReplicaLeaving)
	if len(leaving) == 0 {
		delete(s.forgetChecks, sh.Shard)
		return
	}
	r := sh.lead
	if r == nil || sh.leader.latest.report.View < sh.Changed || r.Last == 0 {
		return
	}
	f := s.forgetChecks[sh.Shard]
	if f.term != r.Term || f.changed != sh.Changed || f.last == 0 {
		f = forgetCheck{term: r.Term, changed: sh.Changed, last: r.Last}
	}
	if f.removedAt == 0 && r.Applied >= f.last && excludesReplicas(r, leaving) {
		f.removedAt = r.Applied
	}
	s.forgetChecks[sh.Shard] = f
	if f.removedAt > 0 && excludesReplicas(r, leaving) && s.haveVotersApplied(sh, f.removedAt) {
		s.command(meta.Forget(sh.Shard, leaving...))
	}
}

func excludesReplicas(r *ShardReport, ids []sharding.ReplicaID) bool {
	return len(r.Outgoing) == 0 && !slices.ContainsFunc(ids, func(id sharding.ReplicaID) bool {
		return slices.Contains(r.Voters, id) || slices.Contains(r.Learners, id)
	})
}

// haveVotersApplied reports whether a majority of the voters, and every voter
// that is not considered dead, has applied the group's log up to the index.
func (s *stepView) haveVotersApplied(sh *shard, index uint64) bool {
	knows := 0
	for _, id := range sh.lead.Voters {
		m, ok := sh.Replica(id)
		if !ok {
			return false
		}
		n := s.byID[m.Node]
		switch {
		case id == sh.lead.Replica:
			knows++
			continue
		case n == nil || n.Status == meta.StatusDown || m.Lost:
			continue
		}
		if r := n.shardReport(sh.Shard); r == nil || r.Replica != id || r.Applied < index {
			return false
		}
		knows++
	}
	return knows > len(sh.lead.Voters)/2
}
