package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/sharding/placement"
)

func newShard(id sharding.ShardID, on []sharding.NodeID) placement.Shard {
	return placement.Shard{ID: id, Replicas: on, Leader: on[0], Pinned: true, PinnedLeader: true}
}

// repair changes placements, most urgent first: voters that must go, then
// shards with too few or too many replicas, then balance.
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

// repairShard makes the next step of one shard, if a step is needed.
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
	case sh.voters > s.policy.Replication && sh.converged:
		s.demote(sh)
	case sh.evictFrom != "":
		s.evict(sh)
	}
}

// relocate replaces a learner whose node cannot read the log by a learner on
// another node, if another node can hold it.
func (s *stepView) relocate(sh *shard) bool {
	if s.isBusy() {
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

// change requests a change of the shard's placement, at most one per step.
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

// replace swaps voters that must go for learners that can be promoted, and
// builds new learners if there are not enough.
func (s *stepView) replace(sh *shard) {
	bad := sh.badVoters
	if n := min(len(bad), len(sh.promotable)); n > 0 {
		s.change(sh, meta.Change{Promote: s.promotionCandidates(sh, n), Retire: ids(bad[:n])})
		return
	}
	if building := sh.copies - len(sh.stuck) + len(bad) - sh.voters; building < len(bad) && !s.isBusy() {
		wanted := s.allocate(sh, len(bad)-building)
		if len(wanted) > 0 {
			s.buildLearners(sh, wanted)
			return
		}
		if building == 0 && !s.retireDamaged(sh) {
			s.shrink(sh)
		}
	}
}

// retireDamaged removes damaged voters that no other node can replace, so that
// their own nodes can get new replicas. Damaged voters do not vote, so the
// shard is not worse off meanwhile. A voter whose node cannot read the log
// stays, because it still votes and a new replica would stop in the same way. A
// voter whose node repeatedly damages replicas stays until the node may be
// given a new replica, because otherwise nothing would replace the voter.
func (s *stepView) retireDamaged(sh *shard) bool {
	damaged := slices.DeleteFunc(slices.Clone(sh.badVoters), func(r meta.Replica) bool {
		n := s.byID[r.Node]
		return n.stopReason(sh.Shard, r.ID) != sharding.StopDamaged || n.rejected || r.ID == sh.lead.Replica
	})
	if len(damaged) == 0 || !sh.converged {
		return false
	}
	s.change(sh, meta.Change{Retire: ids(damaged)})
	return true
}

// shrink removes voters that no other node can replace: the voters of leaving
// nodes, because the cluster becomes smaller, and dead voters if their removal
// makes the shard safer.
//
// A leaving node keeps its votes until every node that stays has all entries
// (see departureObstacle). Otherwise the shard would keep fewer copies than the
// nodes allow. For example, of three voters only one working copy would be left
// if another node does not answer.
//
// A dead voter still counts toward the majority: of five voters with two dead,
// all three live voters must answer. If no node can replace a dead voter, it is
// removed if the policy wants no more voters than are alive, or if an operator
// gave up its node and the shard then survives more failures. So five voters of
// which two are dead become three. Three voters of which one is dead stay
// three, because two voters would survive no more failures, and a single voter
// would hold the only copy of acknowledged data. Nodes that have been dead for
// a long time, but that no operator gave up, keep their votes, because they may
// come back.
func (s *stepView) shrink(sh *shard) {
	stay := s.liveVoters(sh)
	leave := s.votersToDrop(sh, stay)
	if len(leave) == 0 || !sh.converged || slices.ContainsFunc(leave, func(r meta.Replica) bool { return r.ID == sh.lead.Replica }) {
		return
	}
	if len(stay) == 0 || len(stay) < s.copies() {
		return // a storage node for another replica exists but is unreachable
	}
	c := meta.Change{Retire: ids(leave)}
	if sh.index < 0 || len(stay) <= sh.voters/2 {
		// The metadata does not allow dropping more than a minority of a
		// shard's replicas in one change. For a data shard, demote the rest to
		// learners, which no quorum depends on.
		c.Retire, c.Demote = nil, c.Retire
	}
	if extra := len(stay) - s.votes(); extra > 0 {
		c.Demote = append(c.Demote, ids(stay[s.votes():])...)
	}
	s.change(sh, c)
}

// liveVoters returns the voters that can stay: the leader, then voters that are
// caught up, then the other voters. The last two groups are sorted by the
// length of their logs, longest first.
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
		case s.isResponsive(sh, r):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(live, func(a, b meta.Replica) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(sh.lead.Match[b.ID], sh.lead.Match[a.ID]))
	})
	return live
}

// isResponsive reports whether the replica's node has a current report and its
// log is close to the leader's.
func (s *stepView) isResponsive(sh *shard, r meta.Replica) bool {
	n := s.byID[r.Node]
	return n != nil && n.fresh && sh.isCaughtUp(r.ID)
}

// votersToDrop returns the voters that must go and may go without replacement,
// given the voters that stay.
func (s *stepView) votersToDrop(sh *shard, stay []meta.Replica) []meta.Replica {
	var leaving, dead []meta.Replica
	alive, answering := 0, 0
	for _, r := range sh.badVoters {
		if s.isDeadVoter(r) {
			dead = append(dead, r)
			continue
		}
		leaving = append(leaving, r)
		if s.isResponsive(sh, r) {
			answering++
		}
	}
	for _, r := range stay {
		if s.isResponsive(sh, r) {
			alive++
		}
	}
	if answering += alive; len(leaving) > 0 && s.departureObstacle(sh) != "" {
		leaving = nil
	}
	// A majority of the current voters must answer, because they must agree to the
	// change.
	if answering <= sh.voters/2 {
		return leaving
	}
	remaining := sh.voters - len(leaving)
	return append(leaving, slices.DeleteFunc(dead, func(r meta.Replica) bool {
		n := s.byID[r.Node]
		abandoned := n == nil || r.Lost || n.Downed || n.Leaving
		gains := tolerance(oddVoters(min(alive, s.policy.Replication)), 0) > tolerance(remaining, remaining-alive)
		return alive < s.policy.Replication && !(abandoned && alive > 0 && gains)
	})...)
}

// isDeadVoter reports whether a voter that must go can no longer vote. If it
// can, its node works, and the voter must go because the node is leaving or
// becomes a proxy, or because the replica has stopped.
func (s *stepView) isDeadVoter(r meta.Replica) bool {
	n := s.byID[r.Node]
	return n == nil || r.Lost || n.Status == meta.StatusDown
}

// departureCheck lists the facts that the nodes that stay must confirm before a
// leaving voter of a shard may go without replacement: they must have the
// entries up to commit, and must have reported after at.
type departureCheck struct {
	commit uint64
	at     time.Time
}

// departureObstacle returns the reason why the voter of a leaving node, or of a
// node that becomes a proxy, cannot be removed from the shard without
// replacement yet. The shard must then have as many copies as the policy wants,
// or a copy on each storage node that stays. These nodes must have confirmed
// their copies, because a node whose last report is recent may have died since,
// and a log that is close to the leader's may belong to a replica that no
// longer works. Dead nodes count as staying until an operator gives them up.
func (s *stepView) departureObstacle(sh *shard) string {
	obstacle, _ := s.departureState(sh)
	return obstacle
}

// departureState returns departureObstacle, and whether a node that stays is
// away, so that nothing can be confirmed yet.
func (s *stepView) departureState(sh *shard) (obstacle string, away bool) {
	if sh.lead == nil {
		return "", false
	}
	check, checking := s.departures[sh.Shard]
	has, confirmed, lacks := 0, checking && sh.leader.latest.at.After(check.at), ""
	for _, r := range sh.Replicas {
		n := s.byID[r.Node]
		switch {
		case r.State == meta.ReplicaLeaving || slices.Contains(sh.badVoters, r) || slices.Contains(sh.badLearners, r):
		case sh.index < 0 && r.State == meta.ReplicaLearner: // every member has a learner
		case n == nil:
		case !n.fresh:
			away = true
			lacks = cmp.Or(lacks, fmt.Sprintf("node %s keeps a copy of shard %d, but cannot be reached by the coordinator", n.Node, sh.Shard))
		case !sh.isCaughtUp(r.ID) || sh.lead.Match[r.ID] < check.commit:
			lacks = cmp.Or(lacks, fmt.Sprintf("node %s keeps a copy of shard %d, but does not have all entries of the leader", n.Node, sh.Shard))
		default:
			has++
			confirmed = confirmed && n.latest.at.After(check.at)
		}
	}
	stay := s.hosts
	for _, n := range s.nodes {
		if n.Status == meta.StatusDown && !n.Downed && !n.Leaving && !n.HasRole(meta.RoleProxy) {
			stay++
			away = true
			lacks = cmp.Or(lacks, fmt.Sprintf("node %s is down and may come back", n.Node))
		}
	}
	switch {
	case has < min(stay, s.policy.Replication) && lacks != "":
		return lacks + ": start or repair it, or run 'hostd node down' for it", away
	case !confirmed:
		return fmt.Sprintf("the copies of shard %d are being checked", sh.Shard), false
	}
	return "", false
}

// beginDepartureChecks begins, and ends, the checks of departureObstacle. A
// check that was passed is renewed, because the voters may still have to wait
// for other conditions. A check is also renewed while a node is away, because
// once that node is back or given up, older reports prove nothing.
func (s *stepView) beginDepartureChecks() {
	for _, sh := range s.shards {
		_, checking := s.departures[sh.Shard]
		switch obstacle, away := s.departureState(sh); {
		case len(sh.badVoters) == 0:
			delete(s.departures, sh.Shard)
		case sh.lead != nil && (!checking || away || obstacle == ""):
			check := departureCheck{sh.lead.Commit, s.now}
			if sh.index < 0 {
				check.commit = max(check.commit, s.view.Index()) // at least the index of the operation to leave
			}
			s.departures[sh.Shard] = check
		}
	}
}

// oddVoters returns the largest odd number that is at most n, and at least 1.
func oddVoters(n int) int { return max(1, (n-1)/2*2+1) }

// tolerance returns how many more failures a group survives, given its voters
// and how many of them are dead. It is negative if the group has no majority
// now.
func tolerance(voters, dead int) int { return voters - dead - (voters/2 + 1) }

// promote promotes learners to reach the desired number of voters in one
// change.
func (s *stepView) promote(sh *shard) bool {
	need := s.votes() - sh.voters
	if !sh.converged || len(sh.promotable) < need {
		return false
	}
	s.change(sh, meta.Change{Promote: s.promotionCandidates(sh, need)})
	return true
}

// demote removes excess votes, but never the leader's. Unresponsive replicas
// lose their votes first, because the remaining voters must form a working
// majority.
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
			if r, ok := sh.ReplicaOn(id); ok && !s.isResponsive(sh, r) && r.ID != sh.lead.Replica {
				node = id
				break
			}
		}
		if r, ok := sh.ReplicaOn(node); ok {
			out = append(out, r.ID)
		}
		have = slices.DeleteFunc(have, func(id sharding.NodeID) bool { return id == node })
	}
	if len(out) > 0 {
		s.change(sh, meta.Change{Demote: out})
	}
}

// evict removes the surplus replica that the strategy chose. If that replica is
// a voter, evict waits until a learner is ready, and promotes the learner in
// the same change.
func (s *stepView) evict(sh *shard) {
	r, ok := sh.ReplicaOn(sh.evictFrom)
	if !ok || r.State == meta.ReplicaLeaving {
		return
	}
	if r.State == meta.ReplicaLearner {
		s.change(sh, meta.Change{Retire: []sharding.ReplicaID{r.ID}})
		return
	}
	if !sh.converged || len(sh.promotable) == 0 {
		return
	}
	heir := s.promotionCandidates(sh, 1)[0]
	for _, o := range s.operations {
		if to, ok := sh.ReplicaOn(o.Node); ok && o.Kind == OperationMove && o.Shard == sh.Shard && slices.Contains(sh.promotable, to) {
			heir = to.ID
		}
	}
	s.change(sh, meta.Change{Promote: []sharding.ReplicaID{heir}, Retire: []sharding.ReplicaID{r.ID}})
}

// grow builds replicas for a shard that has too few.
func (s *stepView) grow(sh *shard, n int) {
	if s.isBusy() {
		return
	}
	if on := s.allocate(sh, n); len(on) > 0 {
		s.buildLearners(sh, on)
	}
}

// isBusy reports whether the limit of concurrent builds is reached. Checking
// this first avoids evaluating placements for thousands of waiting shards.
func (s *stepView) isBusy() bool { return s.building >= s.opts.MaxMovesInFlight }

// allocate chooses nodes for more replicas of the shard. It may choose nodes
// that have reached their limit of concurrent builds: waiting for them is
// better than permanently using a worse node.
func (s *stepView) allocate(sh *shard, n int) []sharding.NodeID {
	var have []sharding.NodeID
	for _, r := range sh.Replicas {
		if !r.Lost {
			have = append(have, r.Node)
		}
	}
	return s.opts.Strategy.Allocate(s.state, have, n)
}

// buildLearners requests learners on those of the nodes that are below their
// limit.
func (s *stepView) buildLearners(sh *shard, on []sharding.NodeID) bool {
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

// rebalance starts moves for balance. It moves replicas only if nothing needs
// repair, and leaderships only if the leaders of all shards are known.
func (s *stepView) rebalance() {
	forced := slices.ContainsFunc(s.operations, func(o *operation) bool { return o.Kind == OperationRebalance })
	if !s.policy.Rebalance && !forced {
		return
	}
	if s.rebalanceBlocked != "" {
		for i := range s.state.Shards {
			s.state.Shards[i].Pinned = true
		}
	}
	for _, m := range s.opts.Strategy.Rebalance(s.state) {
		sh := s.shard(m.Shard)
		switch {
		case sh == nil || sh.busy:
		case m.Leader:
			if !s.hasElection && len(s.pendingTransfers) < s.opts.MaxTransfers {
				s.transferLeadership(sh, s.byID[m.To])
			}
		default:
			s.buildLearners(sh, []sharding.NodeID{m.To})
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

// repairMeta maintains the voters of the metadata shard, of which every member
// has a replica. A member that leaves must follow the metadata as long as it
// holds other replicas. Its replica of the metadata shard therefore loses its
// vote first, and is removed last.
func (s *stepView) repairMeta(sh *shard) {
	var last []meta.Replica
	for _, r := range sh.badLearners {
		if n := s.byID[r.Node]; (n == nil || n.replicas == 0) && sh.converged {
			last = append(last, r)
		}
	}
	switch {
	case len(last) > 0:
		s.change(sh, meta.Change{Retire: ids(last)})
	case sh.lead == nil:
	case len(sh.badVoters) > 0 && len(sh.promotable) > 0:
		n := min(len(sh.badVoters), len(sh.promotable))
		s.change(sh, meta.Change{Promote: s.promotionCandidates(sh, n), Demote: ids(sh.badVoters[:n])})
	case len(sh.badVoters) > 0:
		s.shrink(sh)
	case sh.voters < s.votes():
		s.promote(sh)
	case sh.voters > s.policy.Replication && sh.converged:
		s.demote(sh)
	}
}
