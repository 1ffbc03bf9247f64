package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

const (
	// A node is slow if its pace is slowFactor times the median pace of all
	// storage nodes. If it is slow for slowAfter without a break, its leaderships
	// are moved away. A pace below slowFloor never counts as slow.
	slowFactor = 10
	slowFloor  = 50 * time.Millisecond
	slowAfter  = 5 * time.Second

	// A replica that stopped because of damage, or that disagreed with the
	// majority, is rebuilt. If the replica that replaces it on the node is damaged
	// too, the node leads nothing for damageLeads and gets no replicas for
	// damageBuilds. After maxDamages it gets no replicas until an operator resumes
	// it, because the node itself must be the cause. After damageForgotten without
	// damage the count is reset.
	damageLeads     = time.Hour
	damageBuilds    = 10 * time.Minute
	maxDamages      = 3
	damageForgotten = 24 * time.Hour
)

// impairment tracks a node that is slow, or that comes and goes:
//
//	         slow for slowAfter, or back after an absence
//	steady ─────────────────────────────────────────────▶ unsteady
//	   ▲                                                     │
//	   └─── neither for BackOff, twice that the next time ───┘
//
// An unsteady node is given no leadership for balance. A slow node also loses
// the leaderships that it has, except leaderships that an operator moved there. So
// does a node that repeatedly damages its replicas.
type impairment struct {
	linked  bool // it was reachable in the last step
	planned bool // when it was last reachable, it wanted to lead nothing
	away    bool // it became unreachable unexpectedly
	start   uint64
	// slow is the time since which the node has been slow without a break; zero if
	// it is not slow.
	slow     time.Time
	last     time.Time // time of the latest trouble
	strikes  int       // number of times that the node became unsteady or had trouble again
	unsteady bool
	evicted  bool // it was slow for slowAfter, so its leaderships are moved away

	// damages counts generations of damaged replicas: a damaged replica that was
	// built after the previous damage starts a new generation. built is the
	// replica id that was to be allocated next at the time of that damage, damaged
	// is the time of the latest report of damage, and disk is the node's disk id.
	damages int
	built   sharding.ReplicaID
	damaged time.Time
	disk    string
}

// evaluateImpairments decides which nodes are steady. A coordinator that
// reaches less than a majority of the storage nodes may be partitioned itself
// and blames no node.
func (s *stepView) evaluateImpairments() {
	usual, known := s.medianPace()
	linked := 0
	for _, n := range s.nodes {
		if n.canHost() && n.linked {
			linked++
		}
	}
	for i, n := range s.nodes {
		if !n.canHost() {
			delete(s.impairments, n.Node)
			continue
		}
		t := s.impairments[n.Node]
		if t == nil {
			t = &impairment{}
			s.impairments[n.Node] = t
		}
		s.checkAbsence(n, t, linked > s.hosts/2)
		s.checkPace(n, t, known && n.fresh && n.latest.report.Pace > max(slowFactor*usual, slowFloor))
		s.checkDamage(n, t)
		unsound := t.damages > 1 && (t.damages >= maxDamages || s.now.Sub(t.damaged) < damageLeads)
		n.rejected = t.damages >= maxDamages || t.damages > 1 && s.now.Sub(t.damaged) < damageBuilds
		n.unsteady, n.evicted = t.unsteady || !t.slow.IsZero() || unsound, t.evicted || unsound
		s.state.Nodes[i].Leads = s.state.Nodes[i].Leads && !n.unsteady
		s.state.Nodes[i].Hosts = s.state.Nodes[i].Hosts && !n.rejected
		if t.unsteady || unsound {
			s.plan.Impairments = append(s.plan.Impairments, s.describeImpairment(n, t))
		}
	}
	maps.DeleteFunc(s.impairments, func(id sharding.NodeID, _ *impairment) bool { return s.byID[id] == nil })
}

// Impairment says why balancing gives a node no leaderships, and until when.
type Impairment struct {
	Node sharding.NodeID
	// Slow: its leaderships were moved away because it was slow. Otherwise it
	// came back after an absence.
	Slow bool
	// Until is the time from which the node is given leaderships again if there is
	// no more trouble. It is zero while the node is slow.
	Until time.Time
	// Cooldown is the time for which the node must have no trouble.
	Cooldown time.Duration
	// Damages is the number of generations of damaged replicas, at least 2, or 0
	// if damage is not the reason. If it is MaxDamages, the node leads nothing and
	// gets no replicas until an operator resumes it, and Until is zero.
	Damages int
}

// MaxDamages is the number of damages after which an operator must resume the
// node.
const MaxDamages = maxDamages

// describeImpairment describes the impairment of an unsteady node. The result
// is the same in every step while nothing changes.
func (s *stepView) describeImpairment(n *node, t *impairment) Impairment {
	if t.damages > 1 {
		out := Impairment{Node: n.Node, Cooldown: damageLeads, Damages: t.damages}
		if t.damages < maxDamages {
			out.Until = t.damaged.Add(damageLeads)
		}
		return out
	}
	out := Impairment{Node: n.Node, Slow: t.evicted, Cooldown: s.backOff(t.strikes)}
	if !t.evicted || t.slow.IsZero() {
		out.Until = t.last.Add(out.Cooldown)
	}
	return out
}

// medianPace returns the median pace of the storage nodes, rounded down to the
// faster of the two middle values.
func (s *stepView) medianPace() (time.Duration, bool) {
	var all []time.Duration
	for _, n := range s.nodes {
		if n.canHost() && n.fresh {
			all = append(all, n.latest.report.Pace)
		}
	}
	slices.Sort(all)
	if len(all) < 2 {
		return 0, false
	}
	return all[(len(all)-1)/2], true
}

func (s *stepView) checkAbsence(n *node, t *impairment, majority bool) {
	switch {
	case !n.linked:
		t.away = t.away || t.linked && majority && !t.planned
	case t.away, n.latest != nil && t.start != 0 && n.latest.report.Incarnation != t.start && !t.planned:
		t.away = false
		s.addStrike(t)
	}
	t.linked = n.linked
	if n.latest != nil && n.linked {
		t.start, t.planned = n.latest.report.Incarnation, n.draining || n.Draining
	}
}

func (s *stepView) checkPace(n *node, t *impairment, slow bool) {
	switch {
	case !slow:
		t.slow = time.Time{}
	case t.slow.IsZero():
		t.slow = s.now
	}
	if slow && s.now.Sub(t.slow) >= slowAfter {
		if !t.evicted {
			s.addStrike(t)
		}
		t.evicted, t.last = true, s.now
	}
	if t.unsteady && s.now.Sub(t.last) >= s.backOff(t.strikes) {
		t.unsteady, t.evicted = false, false
	}
	if !t.unsteady && s.now.Sub(t.last) >= s.opts.MaxBackOff {
		t.strikes = 0
	}
}

// checkDamage counts how often replicas of the node were damaged. All replicas
// that were damaged at the same time count once: only a damaged replica that
// was built after the previous damage shows that the node itself damages data.
func (s *stepView) checkDamage(n *node, t *impairment) {
	if t.disk != n.Disk || t.damages > 0 && t.damages < maxDamages && s.now.Sub(t.damaged) >= damageForgotten {
		t.damages, t.built, t.disk = 0, 0, n.Disk
	}
	if n.latest == nil || !n.latest.stops {
		return
	}
	for _, r := range n.latest.report.Shards {
		if p, _ := s.view.Placement(r.Shard); r.Stopped != sharding.StopDamaged || !slices.ContainsFunc(p.Replicas, func(m meta.Replica) bool { return m.ID == r.Replica && m.Node == n.Node }) {
			continue
		}
		if r.Replica >= t.built {
			t.damages, t.damaged, t.built = t.damages+1, s.now, s.view.NextReplica()
		}
	}
}

// clearDamage resets the damage count of a node when an operator resumes it.
func (s *stepView) clearDamage(node sharding.NodeID) {
	if t := s.impairments[node]; t != nil {
		t.damages, t.built = 0, s.view.NextReplica()
	}
}

func (s *stepView) addStrike(t *impairment) {
	t.unsteady, t.last = true, s.now
	t.strikes++
}

// backOff returns the time for which a node must have no trouble after this
// number of strikes.
func (s *stepView) backOff(strikes int) time.Duration {
	d := s.opts.BackOff
	for ; strikes > 1 && d < s.opts.MaxBackOff; strikes-- {
		d *= 2
	}
	return min(d, s.opts.MaxBackOff)
}

// transferTarget returns the node that should take over leadership of the shard
// from a leader that should lead nothing, or nil if there is none. If the
// leader is merely slow, only steady nodes qualify.
func (s *stepView) transferTarget(sh *shard) *node {
	heirs := s.transferTargets(sh)
	if !sh.leader.mustNotLead() {
		heirs = slices.DeleteFunc(heirs, func(n *node) bool { return n.unsteady })
	}
	if len(heirs) == 0 {
		return nil
	}
	return slices.MinFunc(heirs, func(a, b *node) int {
		return cmp.Or(compareBools(a.unsteady, b.unsteady), cmp.Compare(a.leads, b.leads), cmp.Compare(a.Node, b.Node))
	})
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
