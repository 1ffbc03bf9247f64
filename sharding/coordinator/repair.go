package coordinator

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/sharding/placement"
)

func newShard(id sharding.ShardID, on []sharding.NodeID) placement.Shard {
	return placement.Shard{ID: id, Replicas: on, Leader: on[0], Pinned: true, PinnedLeader: true}
}

// repair changes placements, the most urgent first: voters that must go, then
// shards with too few or too many copies, then balance.
func (s *stepView) repair() {
	for _, sh := range s.shards {
		if len(sh.badVoters) > 0 {
			s.repairShard(sh)
		}
	}
	for _, sh := range s.shards {
		if len(sh.badVoters) == 0 {
			s.repairShard(sh)
		}
	}
	s.rebalance()
}

// repairShard takes the next step of one shard, if there is one to take.
func (s *stepView) repairShard(sh *shard) {
	if sh.index < 0 {
		s.repairMeta(sh)
		return
	}
	switch {
	case len(sh.badLearners) > 0:
		s.change(sh, meta.Change{Retire: ids(sh.badLearners)})
	case sh.lead == nil:
	case len(sh.stuck) > 0 && s.relocate(sh):
	case len(sh.badVoters) > 0:
		s.replace(sh)
	case sh.voters < s.votes() && s.promote(sh):
	case sh.copies < s.copies():
		s.grow(sh, s.copies()-sh.copies)
	case sh.voters > s.policy.Replication && sh.settled:
		s.demote(sh)
	case sh.victim != "":
		s.evict(sh)
	}
}

// relocate has a learner built on another node in the place of one that is
// stuck, if there is such a node.
func (s *stepView) relocate(sh *shard) bool {
	if s.busy() {
		return false
	}
	on := s.allocate(sh, 1)
	if len(on) == 0 || s.byID[on[0]].building >= s.opts.MaxMovesPerNode {
		return false
	}
	s.byID[on[0]].building++
	s.building++
	s.change(sh, meta.Change{Add: on, Retire: ids(sh.stuck[:1])})
	return true
}

// change asks for a change of the shard; one a step.
func (s *stepView) change(sh *shard, c meta.Change) {
	c.Shard = sh.Shard
	sh.busy = true
	if sh.index >= 0 {
		s.state.Shards[sh.index].Pinned = true
	}
	s.command(meta.ChangeReplicas(c))
}

func ids(replicas []meta.Replica) []sharding.ReplicaID {
	out := make([]sharding.ReplicaID, len(replicas))
	for i, r := range replicas {
		out[i] = r.ID
	}
	return out
}

// replace swaps voters that must go for learners that could vote, and has
// learners built where there are not enough.
func (s *stepView) replace(sh *shard) {
	bad := sh.badVoters
	if n := min(len(bad), len(sh.ripe)); n > 0 {
		s.change(sh, meta.Change{Promote: s.spare(sh, n), Retire: ids(bad[:n])})
		return
	}
	if building := sh.copies - len(sh.stuck) + len(bad) - sh.voters; building < len(bad) && !s.busy() {
		wanted := s.allocate(sh, len(bad)-building)
		if len(wanted) > 0 {
			s.build(sh, wanted)
			return
		}
		if building == 0 && !s.renew(sh) {
			s.shrink(sh)
		}
	}
}

// renew lets damaged voters leave that no other node can take the place of:
// their own node gets another replica then. They do not vote, so that the shard
// is no worse off meanwhile. One whose node cannot read the log stays: it would
// stop again, and it votes. One whose node damages what it is given stays until
// the node may be given another: nothing would come after it.
func (s *stepView) renew(sh *shard) bool {
	damaged := slices.DeleteFunc(slices.Clone(sh.badVoters), func(r meta.Replica) bool {
		n := s.byID[r.Node]
		return n.stopped(sh.Shard, r.ID) != sharding.StopDamaged || n.rejected || r.ID == sh.lead.Replica
	})
	if len(damaged) == 0 || !sh.settled {
		return false
	}
	s.change(sh, meta.Change{Retire: ids(damaged)})
	return true
}

// shrink lets voters leave that nobody can replace: those of nodes that leave,
// because the cluster becomes smaller, and dead ones where that makes the shard
// safer.
//
// A dead voter still counts in every majority: of five voters with two dead
// ones, all three others have to answer. Where no node can take its place it
// leaves if the policy wants no more voters than are alive, or if an operator
// gave its node up and the shard survives more deaths without it. So five
// voters with two dead become three, and three with one dead stay three: two
// would survive no more, and a single voter would hold all acknowledged data
// alone. A node that is merely dead for long keeps its votes, because it may
// come back.
func (s *stepView) shrink(sh *shard) {
	stay := s.liveVoters(sh)
	leave := slices.DeleteFunc(slices.Clone(sh.badVoters), func(r meta.Replica) bool { return !s.mayShrink(sh, r, stay) })
	if len(leave) == 0 || !sh.settled || slices.ContainsFunc(leave, func(r meta.Replica) bool { return r.ID == sh.lead.Replica }) {
		return
	}
	if len(stay) == 0 || len(stay) < s.copies() {
		return // there is a host for another copy, it is only out of reach
	}
	c := meta.Change{Retire: ids(leave)}
	if sh.index < 0 || len(stay) <= sh.voters/2 {
		// The metadata drops no more than a minority of a shard's copies in one
		// change. Of a data shard the rest leave as learners, which nothing counts on.
		c.Retire, c.Demote = nil, c.Retire
	}
	if extra := len(stay) - s.votes(); extra > 0 {
		c.Demote = append(c.Demote, ids(stay[s.votes():])...)
	}
	s.change(sh, c)
}

// liveVoters are the voters that may stay, the leader first, then those that
// are caught up.
func (s *stepView) liveVoters(sh *shard) []meta.Replica {
	var live []meta.Replica
	for _, r := range sh.Replicas {
		if r.State == meta.ReplicaVoter && !slices.Contains(sh.badVoters, r) {
			live = append(live, r)
		}
	}
	rank := func(r meta.Replica) int {
		switch {
		case r.ID == sh.lead.Replica:
			return 0
		case s.answers(sh, r):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(live, func(a, b meta.Replica) int { return cmp.Compare(rank(a), rank(b)) })
	return live
}

// answers reports whether the replica's node is heard and its log is near the
// leader's.
func (s *stepView) answers(sh *shard, r meta.Replica) bool {
	n := s.byID[r.Node]
	return n != nil && n.fresh && sh.caughtUp(r.ID)
}

// mayShrink reports whether a voter that must go, and that nobody replaces, may
// leave without a replacement.
func (s *stepView) mayShrink(sh *shard, r meta.Replica, stay []meta.Replica) bool {
	n := s.byID[r.Node]
	if n != nil && !r.Lost && n.Status != meta.StatusDown {
		return true // its node leaves, and it counts as alive until then
	}
	alive := 0
	for _, v := range stay {
		if s.answers(sh, v) {
			alive++
		}
	}
	if alive <= sh.voters/2 {
		return false
	}
	abandoned := n == nil || r.Lost || n.Downed
	return alive >= s.policy.Replication || abandoned && tolerance(odd(min(alive, s.policy.Replication)), 0) > tolerance(sh.voters, sh.voters-alive)
}

// odd is the largest odd number of voters that n replicas can be, at least 1.
func odd(n int) int { return max(1, (n-1)/2*2+1) }

// tolerance is how many more deaths a group of so many voters survives with a
// majority, of which some are dead already; below 0 if it has none now.
func tolerance(voters, dead int) int { return voters - dead - (voters/2 + 1) }

// promote lets learners vote, all that are wanted in one change.
func (s *stepView) promote(sh *shard) bool {
	need := s.votes() - sh.voters
	if !sh.settled || len(sh.ripe) < need {
		return false
	}
	s.change(sh, meta.Change{Promote: s.spare(sh, need)})
	return true
}

// demote takes the votes that the policy does not want any more, not the
// leader's, and those of replicas that do not answer first: the voters that
// remain have to be a majority that works.
func (s *stepView) demote(sh *shard) {
	var have []sharding.NodeID
	for _, r := range sh.Replicas {
		if r.State == meta.ReplicaVoter {
			have = append(have, r.Node)
		}
	}
	var out []sharding.ReplicaID
	for range sh.voters - s.votes() {
		node := s.opts.Strategy.Evict(s.state, have, []sharding.NodeID{sh.leader.Node})
		for _, id := range have {
			if r, ok := sh.On(id); ok && !s.answers(sh, r) && r.ID != sh.lead.Replica {
				node = id
				break
			}
		}
		if r, ok := sh.On(node); ok {
			out = append(out, r.ID)
		}
		have = slices.DeleteFunc(have, func(id sharding.NodeID) bool { return id == node })
	}
	if len(out) > 0 {
		s.change(sh, meta.Change{Demote: out})
	}
}

// evict lets the copy go that the shard is best without. If that one votes, a
// learner takes its place, once it can.
func (s *stepView) evict(sh *shard) {
	r, ok := sh.On(sh.victim)
	if !ok || r.State == meta.ReplicaLeaving {
		return
	}
	if r.State == meta.ReplicaLearner {
		s.change(sh, meta.Change{Retire: []sharding.ReplicaID{r.ID}})
		return
	}
	if !sh.settled || len(sh.ripe) == 0 {
		return
	}
	heir := s.spare(sh, 1)[0]
	for _, o := range s.operations {
		if to, ok := sh.On(o.Node); ok && o.Kind == OperationMove && o.Shard == sh.Shard && slices.Contains(sh.ripe, to) {
			heir = to.ID
		}
	}
	s.change(sh, meta.Change{Promote: []sharding.ReplicaID{heir}, Retire: []sharding.ReplicaID{r.ID}})
}

// grow has copies built where the shard has too few.
func (s *stepView) grow(sh *shard, n int) {
	if s.busy() {
		return
	}
	if on := s.allocate(sh, n); len(on) > 0 {
		s.build(sh, on)
	}
}

// busy says that no more replicas may be built now: where they would go is not
// worth asking then, for thousands of shards that wait.
func (s *stepView) busy() bool { return s.building >= s.opts.MaxMovesInFlight }

// allocate names nodes for more copies of the shard, within the bounds of what
// is built at one time. A node that is at its bound is waited for: another one
// would be worse for longer.
func (s *stepView) allocate(sh *shard, n int) []sharding.NodeID {
	var have []sharding.NodeID
	for _, r := range sh.Replicas {
		if !r.Lost {
			have = append(have, r.Node)
		}
	}
	return s.opts.Strategy.Allocate(s.state, have, n)
}

// build asks for learners on those of the nodes that are not at their bound.
func (s *stepView) build(sh *shard, on []sharding.NodeID) bool {
	var add []sharding.NodeID
	for _, id := range on {
		if n := s.byID[id]; n.building < s.opts.MaxMovesPerNode && s.building < s.opts.MaxMovesInFlight {
			n.building++
			s.building++
			add = append(add, id)
		}
	}
	if len(add) == 0 {
		return false
	}
	s.state.SetReplicas(sh.index, slices.Concat(s.state.Shards[sh.index].Replicas, add))
	s.change(sh, meta.Change{Add: add})
	return true
}

// rebalance begins moves for balance alone: of replicas in a cluster that has
// nothing worse to do, of leaderships where it is known who leads what.
func (s *stepView) rebalance() {
	forced := slices.ContainsFunc(s.operations, func(o *operation) bool { return o.Kind == OperationRebalance })
	if !s.policy.Rebalance && !forced {
		return
	}
	if s.unrest != "" {
		for i := range s.state.Shards {
			s.state.Shards[i].Pinned = true
		}
	}
	for _, m := range s.opts.Strategy.Rebalance(s.state) {
		sh := s.shard(m.Shard)
		switch {
		case sh == nil || sh.busy:
		case m.Leader:
			if !s.electing && len(s.moving) < s.opts.MaxTransfers {
				s.handOver(sh, s.byID[m.To])
			}
		default:
			s.build(sh, []sharding.NodeID{m.To})
		}
	}
}

func (s *stepView) shard(id sharding.ShardID) *shard {
	for _, sh := range s.shards {
		if sh.Shard == id {
			return sh
		}
	}
	return nil
}

// repairMeta keeps the voters of the metadata shard, which every member has a
// replica of. The replica of a member that goes is its last: until it holds
// nothing else it has to hear what becomes of the rest, so it loses its vote
// first and leaves later.
func (s *stepView) repairMeta(sh *shard) {
	var last []meta.Replica
	for _, r := range sh.badLearners {
		if n := s.byID[r.Node]; (n == nil || n.replicas == 0) && sh.settled {
			last = append(last, r)
		}
	}
	switch {
	case len(last) > 0:
		s.change(sh, meta.Change{Retire: ids(last)})
	case sh.lead == nil:
	case len(sh.badVoters) > 0 && len(sh.ripe) > 0:
		n := min(len(sh.badVoters), len(sh.ripe))
		s.change(sh, meta.Change{Promote: s.spare(sh, n), Demote: ids(sh.badVoters[:n])})
	case len(sh.badVoters) > 0:
		s.shrink(sh)
	case sh.voters < s.votes():
		s.promote(sh)
	case sh.voters > s.policy.Replication && sh.settled:
		s.demote(sh)
	}
}
