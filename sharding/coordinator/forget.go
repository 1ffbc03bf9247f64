package coordinator

import (
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// fence is what has to be seen before a replica that is leaving may go.
type fence struct {
	term    sharding.Term
	changed uint64 // of the placement
	last    uint64 // the leader's log when it first reported in knowledge of that
	gone    uint64 // the leader's applied index when its group was seen without them; 0 before
}

// forget drops replicas that have left their group for good. A node deletes
// what is forgotten, so all of this must hold before:
//
//   - The leader went through Converge in a view that has them leaving, and
//     everything that was in its log then is applied: no change that brings one
//     of them back is under way.
//   - Its membership is without them, and not a joint one.
//   - So is that of every other voter that is not taken for dead. A voter that
//     has not learned of the change yet would ask the ones that left for their
//     votes, and without them might never elect a leader.
func (s *stepView) forget(sh *shard) {
	leaving := sh.IDs(meta.ReplicaLeaving)
	if len(leaving) == 0 {
		delete(s.fences, sh.Shard)
		return
	}
	r := sh.lead
	if r == nil || sh.leader.heard.report.View < sh.Changed || r.Last == 0 {
		return
	}
	f := s.fences[sh.Shard]
	if f.term != r.Term || f.changed != sh.Changed || f.last == 0 {
		f = fence{term: r.Term, changed: sh.Changed, last: r.Last}
	}
	if f.gone == 0 && r.Applied >= f.last && without(r, leaving) {
		f.gone = r.Applied
	}
	s.fences[sh.Shard] = f
	if f.gone > 0 && without(r, leaving) && s.known(sh, f.gone) {
		s.command(meta.Forget(sh.Shard, leaving...))
	}
}

func without(r *ShardReport, ids []sharding.ReplicaID) bool {
	return len(r.Outgoing) == 0 && !slices.ContainsFunc(ids, func(id sharding.ReplicaID) bool {
		return slices.Contains(r.Voters, id) || slices.Contains(r.Learners, id)
	})
}

// known says whether every voter that is not taken for dead, and a majority,
// has applied the group's log up to the index.
func (s *stepView) known(sh *shard, index uint64) bool {
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
