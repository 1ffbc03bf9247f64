package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
	"github.com/hostd/hostd/sharding/placement"
)

// stepView is the state of the cluster in one step, together with the step's
// decisions so far.
type stepView struct {
	*Coordinator
	now    time.Time
	view   *meta.View
	policy meta.Policy
	nodes  []*node // members, sorted by id
	byID   map[sharding.NodeID]*node
	shards []*shard // placed shards, sorted by number
	// hosts is the number of members that can hold data.
	hosts int
	// state is the input of the strategy. Its shards are the data shards of
	// shards, in the same order.
	state *placement.State
	// building counts the replicas that are being built.
	building int
	// rebalanceBlocked says why replicas must not move for balance: it names
	// the repair in progress or the unreachable node. It is empty if replicas
	// may move.
	rebalanceBlocked string
	// hasElection means that some shard has no known leader but may get one soon.
	hasElection bool
	// writesOperation means that the plan includes commands of an operation.
	writesOperation bool
	plan            Plan
}

// node is a member.
type node struct {
	meta.Member
	latest *receivedReport // latest report, if it is of this incarnation
	// linked means that the coordinator can reach the node, reachable that the
	// node is linked or has just sent a report, and fresh that the node is
	// reachable and its report is current.
	linked, reachable, fresh bool
	draining                 bool // the node reports that it is about to stop or cannot lead
	full                     bool // the node reports that its disk is full
	behind                   bool // the node reports that it cannot read the log of some shard
	// unsteady means that balancing gives it no leaderships, and evicted that it
	// is slow and loses its leaderships.
	unsteady, evicted bool
	// rejected means that its replicas were repeatedly damaged, and that the
	// node is given no replicas for now.
	rejected bool
	replicas int // replicas of data shards, including leaving ones
	building int
	leads    int // number of leaderships once all pending transfers are done
}

// canHost reports whether the node may hold data.
func (n *node) canHost() bool { return n.Status == meta.StatusUp && !n.HasRole(meta.RoleProxy) }

// canTake reports whether the node may be given leaderships or replicas now.
func (n *node) canTake() bool { return n.canVote() && !n.Draining && !n.full }

// canVote reports whether a replica on the node may be promoted now. A draining
// node is given no replicas and leads nothing, but its existing replicas can
// vote. Otherwise a shard would be short of voters for as long as the drain
// lasts.
func (n *node) canVote() bool { return n.canHost() && n.linked && n.fresh && !n.draining }

// shard is a placed shard.
type shard struct {
	meta.Placement
	// lead is the leader's report, and leader its node. Both are nil if no leader
	// with a current report is known.
	lead   *ShardReport
	leader *node
	// converged means that the group's membership equals the placement, except for
	// leaving replicas.
	converged bool
	// badVoters and badLearners must go; promotable learners could become
	// voters now.
	badVoters, badLearners, promotable []meta.Replica
	// stuck are learners whose nodes cannot read the log. A new replica on the
	// same node would not help.
	stuck          []meta.Replica
	voters, copies int // copies counts the voters and learners that can stay
	// evictFrom is the node whose replica is evicted if the shard has one
	// replica too many.
	evictFrom sharding.NodeID
	index     int // index in the strategy's state; -1 for the metadata shard
	busy      bool
}

// newStepView receives the reports and builds the view of the step.
func (c *Coordinator) newStepView(in Input) *stepView {
	s := &stepView{Coordinator: c, now: in.Now, view: in.View, byID: map[sharding.NodeID]*node{}, state: &placement.State{}}
	c.receiveReports(in)
	policy, set := in.View.Policy()
	if !set {
		policy.Replication, policy.MinMembers = c.opts.Replication, c.opts.MinMembers
	}
	policy.DeadAfter = or(policy.DeadAfter, c.opts.DeadAfter)
	s.policy = policy
	s.evaluateNodes(in)
	if in.View != c.placementsView {
		c.placementsView, c.placements = in.View, in.View.Placements()
	}
	placements := c.placements
	shards := make([]shard, len(placements)) // one allocation instead of thousands
	s.shards = make([]*shard, 0, len(placements))
	s.state.Shards = make([]placement.Shard, 0, len(placements))
	for i, p := range placements {
		shards[i].Placement = p
		s.evaluateShard(&shards[i])
	}
	s.findSurplus()
	for _, sh := range s.shards {
		switch {
		case s.rebalanceBlocked != "" || sh.index < 0:
		case sh.lead == nil:
			s.rebalanceBlocked = s.leaderlessReason(sh)
		case len(sh.badVoters) > 0:
			s.rebalanceBlocked = fmt.Sprintf("voters of shard %d are being replaced", sh.Shard)
		}
	}
	return s
}

// receiveReports stores the latest report of each node and the highest terms.
func (c *Coordinator) receiveReports(in Input) {
	for _, r := range in.Reports {
		old := c.reports[r.Node]
		if old != nil && cmp.Or(cmp.Compare(r.Incarnation, old.report.Incarnation), cmp.Compare(r.Seq, old.report.Seq)) <= 0 {
			continue
		}
		h := &receivedReport{report: r, at: in.Now, shards: make(map[sharding.ShardID]*ShardReport, len(r.Shards))}
		for i := range r.Shards {
			sr := &r.Shards[i]
			h.shards[sr.Shard] = sr
			if sr.Stopped != sharding.NotStopped {
				// A stopped replica may report a term that no other replica knows.
				h.stops = true
				h.behind = h.behind || sr.Stopped == sharding.StopUnsupported
				continue
			}
			c.terms[sr.Shard] = max(c.terms[sr.Shard], sr.Term)
		}
		c.reports[r.Node] = h
		if old != nil {
			c.clearLeaderships(old)
		}
		for i := range r.Shards {
			if sr := &r.Shards[i]; sr.Leader {
				if led := c.leaders[sr.Shard]; led == nil || led.shards[sr.Shard].Term < sr.Term {
					c.leaders[sr.Shard] = h
				}
			}
		}
	}
	for id, h := range c.reports {
		if _, member := in.View.Member(id); !member && in.Now.Sub(h.at) > c.opts.Fresh {
			delete(c.reports, id)
			c.clearLeaderships(h)
		}
	}
}

// clearLeaderships removes the report's claims to leadership. A node that
// claims leadership in an older term is not taken for the leader, because its
// term is no longer the highest.
func (c *Coordinator) clearLeaderships(h *receivedReport) {
	for i := range h.report.Shards {
		if id := h.report.Shards[i].Shard; c.leaders[id] == h {
			delete(c.leaders, id)
		}
	}
}

func (s *stepView) evaluateNodes(in Input) {
	for _, m := range in.View.Members() {
		n := &node{Member: m, linked: in.Reachable[m.Node], reachable: in.Reachable[m.Node]}
		if h := s.Coordinator.reports[m.Node]; h != nil && (m.Incarnation == 0 || h.report.Incarnation == m.Incarnation) {
			n.latest = h
			recent := in.Now.Sub(h.at) <= s.opts.Fresh
			// A report proves that the node is alive, even if gossip considers it
			// unreachable.
			n.fresh = recent && (n.reachable || in.Now.Sub(h.at) <= s.opts.Fresh/2)
			n.reachable = n.reachable || n.fresh
			n.draining, n.full, n.behind = h.report.Draining, h.report.Full, h.behind
		}
		if n.canHost() {
			s.hosts++
		}
		switch {
		case s.rebalanceBlocked != "":
		case n.canHost() && !(n.linked && n.fresh):
			s.rebalanceBlocked = fmt.Sprintf("the coordinator receives no heartbeats from node %s", n.Node)
		case n.Status != meta.StatusUp && n.Status != meta.StatusJoining:
			s.rebalanceBlocked = fmt.Sprintf("node %s is %s", n.Node, n.Status)
		}
		s.nodes = append(s.nodes, n)
		s.byID[m.Node] = n
		s.state.Nodes = append(s.state.Nodes, placement.Node{ID: m.Node, Zone: m.Zone, Hosts: n.canTake() && !n.behind, Leads: n.canTake()})
	}
	s.evaluateImpairments()
	maps.DeleteFunc(s.unreachableSince, func(id sharding.NodeID, _ time.Time) bool {
		n := s.byID[id]
		return n == nil || n.reachable
	})
	for _, n := range s.nodes {
		if _, known := s.unreachableSince[n.Node]; !known && !n.reachable {
			s.unreachableSince[n.Node] = s.now
		}
	}
}

// evaluateShard evaluates one shard.
func (s *stepView) evaluateShard(sh *shard) {
	p := sh.Placement
	sh.index = -1
	sh.lead, sh.leader = s.leaderOf(p.Shard)
	sh.converged = sh.lead != nil && isConverged(p, sh.lead)
	on := make([]sharding.NodeID, 0, len(p.Replicas))
	for _, r := range p.Replicas {
		n := s.byID[r.Node]
		if n != nil && p.Shard != sharding.MetaShard {
			n.replicas++
		}
		bad := n == nil || r.Lost || n.Status == meta.StatusLeaving || n.Status == meta.StatusDown ||
			p.Shard != sharding.MetaShard && n.HasRole(meta.RoleProxy)
		stopped := n.stopReason(p.Shard, r.ID)
		switch {
		case bad, r.State == meta.ReplicaLeaving:
		case r.State == meta.ReplicaVoter:
			bad = stopped != sharding.NotStopped
		case p.Shard == sharding.MetaShard: // every member keeps its learner
		case stopped == sharding.StopUnsupported:
			sh.stuck = append(sh.stuck, r)
		default:
			bad = stopped != sharding.NotStopped
		}
		switch {
		case r.State == meta.ReplicaLeaving:
			continue
		case r.State == meta.ReplicaVoter && bad:
			sh.badVoters = append(sh.badVoters, r)
		case bad:
			sh.badLearners = append(sh.badLearners, r)
		default:
			sh.copies++
			on = append(on, r.Node)
		}
		if r.State == meta.ReplicaVoter {
			sh.voters++
			continue
		}
		if ripe := !bad && stopped == sharding.NotStopped && n.canVote() && sh.isCaughtUp(r.ID); ripe {
			sh.promotable = append(sh.promotable, r)
		} else if stuck := !bad && stopped == sharding.StopUnsupported; n != nil && p.Shard != sharding.MetaShard && !stuck {
			// A learner that cannot read the log makes no progress and must not
			// block other builds.
			n.building++
			s.building++
		}
	}
	s.shards = append(s.shards, sh)
	if p.Shard != sharding.MetaShard {
		sh.index = len(s.state.Shards)
		s.state.Shards = append(s.state.Shards, placement.Shard{ID: p.Shard, Replicas: on})
	}
	s.evaluateLeader(sh)
}

// evaluateLeader determines which node leads the shard, or will lead it after a
// pending transfer. During a transfer, the old leader may already have reported
// that it no longer leads, while the new leader has not reported yet that it
// does. Such a shard counts for the new leader, because otherwise other shards
// would be moved to that node in its place.
func (s *stepView) evaluateLeader(sh *shard) {
	if sh.lead == nil {
		m, moving := s.pendingTransfers[sh.Shard]
		if to := s.byID[m.to]; moving && to != nil && s.now.Sub(m.at) <= s.opts.TransferTimeout {
			to.leads++
			if sh.index >= 0 {
				st := &s.state.Shards[sh.index]
				st.Leader, st.PinnedLeader = to.Node, true
			}
			return
		}
		s.noteLeaderless(sh)
		return
	}
	delete(s.leaderlessSince, sh.Shard)
	at := sh.leader
	if m, moving := s.pendingTransfers[sh.Shard]; moving {
		to := s.byID[m.to]
		if m.term != sh.lead.Term || s.now.Sub(m.at) > s.opts.TransferTimeout || to == nil {
			delete(s.pendingTransfers, sh.Shard)
		} else {
			at = to
		}
	}
	at.leads++
	if sh.index < 0 {
		return
	}
	st := &s.state.Shards[sh.index]
	st.Leader = at.Node
	_, st.PinnedLeader = s.pendingTransfers[sh.Shard]
	st.PinnedLeader = st.PinnedLeader || !sh.converged
	heirs := s.transferTargets(sh)
	st.Able = make([]sharding.NodeID, len(heirs))
	for i, n := range heirs {
		st.Able[i] = n.Node
	}
}

// noteLeaderless records since when a shard has had no leader. If the shard has
// lost its leader recently, the number of leaderships per node is not reliable.
func (s *stepView) noteLeaderless(sh *shard) {
	if sh.index < 0 {
		return
	}
	since, known := s.leaderlessSince[sh.Shard]
	if !known {
		since = s.now
		s.leaderlessSince[sh.Shard] = since
	}
	s.hasElection = s.hasElection || s.now.Sub(since) < s.opts.Fresh
}

// leaderOf returns the current report of the shard's leader, if there is one.
func (s *stepView) leaderOf(id sharding.ShardID) (*ShardReport, *node) {
	h := s.leaders[id]
	if h == nil || s.now.Sub(h.at) > s.opts.Fresh {
		return nil, nil
	}
	n := s.byID[h.report.Node]
	if r := h.shards[id]; n != nil && n.latest == h && r.Term == s.terms[id] {
		return r, n
	}
	return nil, nil
}

// shardReport returns the node's latest report about its replica of the shard.
func (n *node) shardReport(id sharding.ShardID) *ShardReport {
	if n.latest == nil {
		return nil
	}
	return n.latest.shards[id]
}

// stopReason returns why the node's replica has stopped, if the node has
// reported a stop.
func (n *node) stopReason(id sharding.ShardID, replica sharding.ReplicaID) sharding.StopReason {
	if n == nil || n.latest == nil || !n.latest.stops {
		return sharding.NotStopped
	}
	if r := n.shardReport(id); r != nil && r.Replica == replica {
		return r.Stopped
	}
	return sharding.NotStopped
}

// transferTargets returns the nodes that can take over leadership of the shard
// now, sorted by id.
func (s *stepView) transferTargets(sh *shard) []*node {
	if sh.lead == nil || len(sh.lead.Outgoing) > 0 {
		return nil
	}
	out := make([]*node, 0, len(sh.Replicas))
	for _, r := range sh.Replicas {
		n := s.byID[r.Node]
		if r.State == meta.ReplicaVoter && !r.Lost && n != nil && n != sh.leader && n.canTake() && n.stopReason(sh.Shard, r.ID) == sharding.NotStopped &&
			slices.Contains(sh.lead.Voters, r.ID) && IsCaughtUp(sh.lead.Match[r.ID], sh.lead.Commit) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *node) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// isCaughtUp reports whether the replica is a member of the group and its log
// is close to the leader's.
func (sh *shard) isCaughtUp(id sharding.ReplicaID) bool {
	return sh.lead != nil && len(sh.lead.Outgoing) == 0 &&
		(slices.Contains(sh.lead.Learners, id) || slices.Contains(sh.lead.Voters, id)) && IsCaughtUp(sh.lead.Match[id], sh.lead.Commit)
}

// isConverged reports whether the group's membership equals the placement,
// except for learners that have not been added yet.
func isConverged(p meta.Placement, r *ShardReport) bool {
	if len(r.Outgoing) > 0 {
		return false
	}
	for _, ids := range [...][]sharding.ReplicaID{r.Voters, r.Learners} {
		for _, id := range ids {
			if m, known := p.Replica(id); !known || m.State == meta.ReplicaLeaving {
				return false
			}
		}
	}
	voters := 0
	for _, m := range p.Replicas {
		if m.State == meta.ReplicaVoter {
			voters++
			if !slices.Contains(r.Voters, m.ID) {
				return false
			}
		}
	}
	return voters == len(r.Voters)
}

// findSurplus chooses the replicas to evict from shards with too many replicas,
// and counts them as if they were already gone.
func (s *stepView) findSurplus() {
	for _, sh := range s.shards {
		if sh.index < 0 {
			continue
		}
		st := &s.state.Shards[sh.index]
		to, ordered := s.moveTargets(sh.Shard)
		if sh.hasSurplus(s) {
			sh.evictFrom = s.opts.Strategy.Evict(s.state, st.Replicas, to)
			s.state.SetReplicas(sh.index, slices.DeleteFunc(slices.Clone(st.Replicas), func(id sharding.NodeID) bool { return id == sh.evictFrom }))
		}
		if at, pinned := s.pinnedLeaders[sh.Shard]; pinned && sh.lead != nil && sh.leader.Node != at {
			delete(s.pinnedLeaders, sh.Shard)
		} else if pinned {
			ordered = true
		}
		st.Pinned = ordered || !sh.converged || sh.evictFrom != "" || len(sh.badVoters)+len(sh.badLearners) > 0 ||
			sh.copies != s.copies() || len(sh.promotable)+sh.voters < sh.copies
		st.PinnedLeader = st.PinnedLeader || ordered
	}
}

// moveTargets returns the nodes to which operators are moving the shard's
// leadership.
func (s *stepView) moveTargets(id sharding.ShardID) (to []sharding.NodeID, ordered bool) {
	for _, o := range s.operations {
		if o.Kind == OperationMove && o.Shard == id {
			to = append(to, o.Node)
		}
	}
	return to, len(to) > 0
}

// copies returns the desired number of replicas of a data shard.
func (s *stepView) copies() int { return min(s.hosts, s.policy.Replication) }

// votes returns the desired number of voters of a shard. It is odd, because one
// more voter would enlarge the majority without tolerating more failures.
func (s *stepView) votes() int { return oddVoters(s.copies()) }

// hasSurplus reports whether the shard has more replicas than desired, because
// a replica is being moved or the policy wants fewer.
func (sh *shard) hasSurplus(s *stepView) bool {
	return len(sh.badVoters) == 0 && sh.copies > max(s.copies(), sh.voters)
}
