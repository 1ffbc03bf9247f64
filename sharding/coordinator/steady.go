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
	// slowFactor is how many times slower than the median of the hosts a node is
	// that shall not lead, for slowAfter without a break. What takes less than
	// slowFloor is not slow, whatever the others take.
	slowFactor = 10
	slowFloor  = 50 * time.Millisecond
	slowAfter  = 5 * time.Second

	// A replica that stopped on damage, or that had other rows than the others, is
	// built again. If the next one of the node is damaged too, the node leads
	// nothing for damageLeads and gets no other one for damageBuilds; after
	// maxDamages of them it gets none until an operator resumes it, since what
	// damages them is the node. damageForgotten without another one forgets all.
	damageLeads     = time.Hour
	damageBuilds    = 10 * time.Minute
	maxDamages      = 3
	damageForgotten = 24 * time.Hour
)

// trouble is what a node gave that is slow, or comes and goes:
//
//	         slow for slowAfter, or back from an absence
//	steady ─────────────────────────────────────────────▶ unsteady
//	   ▲                                                     │
//	   └─── neither for BackOff, twice that the next time ───┘
//
// An unsteady node is given no leadership for balance. One that is slow gives
// those away that it has, except those that an operator moved there. So does one
// whose replicas are damaged again and again.
type trouble struct {
	linked  bool // it was heard at the last step
	planned bool // it wanted to lead nothing when it was heard last
	away    bool // it was lost, and nothing explains why
	start   uint64
	// slow is since when it has been slow without a break; zero: it is not.
	slow     time.Time
	last     time.Time // of its trouble
	strikes  int       // times that it became unsteady, or the trouble went on
	unsteady bool
	evicted  bool // it was slow for too long

	// damages counts generations of damaged replicas: one that was built after the
	// last damage begins another. built is the first id that was not given out
	// then, damaged when a damaged replica was reported last, disk the node's disk.
	damages int
	built   sharding.ReplicaID
	damaged time.Time
	disk    string
}

// lookAtTroubles judges who is steady. A coordinator that hears less than a
// majority of the hosts may be what is cut off, and blames nobody.
func (s *stepView) lookAtTroubles() {
	usual, known := s.usualPace()
	linked := 0
	for _, n := range s.nodes {
		if n.host() && n.linked {
			linked++
		}
	}
	for i, n := range s.nodes {
		if !n.host() {
			delete(s.troubles, n.Node)
			continue
		}
		t := s.troubles[n.Node]
		if t == nil {
			t = &trouble{}
			s.troubles[n.Node] = t
		}
		s.lookAtAbsence(n, t, linked > s.hosts/2)
		s.lookAtPace(n, t, known && n.fresh && n.heard.report.Pace > max(slowFactor*usual, slowFloor))
		s.lookAtDamage(n, t)
		unsound := t.damages > 1 && (t.damages >= maxDamages || s.now.Sub(t.damaged) < damageLeads)
		n.rejected = t.damages >= maxDamages || t.damages > 1 && s.now.Sub(t.damaged) < damageBuilds
		n.unsteady, n.evicted = t.unsteady || !t.slow.IsZero() || unsound, t.evicted || unsound
		s.state.Nodes[i].Leads = s.state.Nodes[i].Leads && !n.unsteady
		s.state.Nodes[i].Hosts = s.state.Nodes[i].Hosts && !n.rejected
		if t.unsteady || unsound {
			s.plan.Troubles = append(s.plan.Troubles, s.tell(n, t))
		}
	}
	maps.DeleteFunc(s.troubles, func(id sharding.NodeID, _ *trouble) bool { return s.byID[id] == nil })
}

// Trouble says why a node is given no leadership for balance, and until when.
type Trouble struct {
	Node sharding.NodeID
	// Slow: what it led was taken from it because it was slow. Otherwise it came
	// back after it was lost.
	Slow bool
	// Until is when it is given leaderships again if it gives no more trouble;
	// zero while it is slow.
	Until time.Time
	// Quiet is for how long it must give no trouble.
	Quiet time.Duration
	// Damages is how often replicas of it were damaged that had been built since
	// the time before, at least 2; 0 if that is not the trouble. At MaxDamages it leads
	// nothing and gets no replicas until it is resumed, and Until is zero.
	Damages int
}

// MaxDamages is the number of damages after which a node has to be resumed by an
// operator.
const MaxDamages = maxDamages

// tell describes the trouble of an unsteady node. It is the same at every step
// while nothing changes.
func (s *stepView) tell(n *node, t *trouble) Trouble {
	if t.damages > 1 {
		out := Trouble{Node: n.Node, Quiet: damageLeads, Damages: t.damages}
		if t.damages < maxDamages {
			out.Until = t.damaged.Add(damageLeads)
		}
		return out
	}
	out := Trouble{Node: n.Node, Slow: t.evicted, Quiet: s.backOff(t.strikes)}
	if !t.evicted || t.slow.IsZero() {
		out.Until = t.last.Add(out.Quiet)
	}
	return out
}

// usualPace is the median of what the hosts report, the quicker of the two in
// the middle.
func (s *stepView) usualPace() (time.Duration, bool) {
	var all []time.Duration
	for _, n := range s.nodes {
		if n.host() && n.fresh {
			all = append(all, n.heard.report.Pace)
		}
	}
	slices.Sort(all)
	if len(all) < 2 {
		return 0, false
	}
	return all[(len(all)-1)/2], true
}

func (s *stepView) lookAtAbsence(n *node, t *trouble, majority bool) {
	switch {
	case !n.linked:
		t.away = t.away || t.linked && majority && !t.planned
	case t.away, n.heard != nil && t.start != 0 && n.heard.report.Incarnation != t.start && !t.planned:
		t.away = false
		s.strike(t)
	}
	t.linked = n.linked
	if n.heard != nil && n.linked {
		t.start, t.planned = n.heard.report.Incarnation, n.draining || n.Draining
	}
}

func (s *stepView) lookAtPace(n *node, t *trouble, slow bool) {
	switch {
	case !slow:
		t.slow = time.Time{}
	case t.slow.IsZero():
		t.slow = s.now
	}
	if slow && s.now.Sub(t.slow) >= slowAfter {
		if !t.evicted {
			s.strike(t)
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

// lookAtDamage counts damages of the node's replicas. One replica is damaged
// once, and so are all that were damaged at the same time as it: only one that
// was built since then shows that the node damages what it is given.
func (s *stepView) lookAtDamage(n *node, t *trouble) {
	if t.disk != n.Disk || t.damages > 0 && t.damages < maxDamages && s.now.Sub(t.damaged) >= damageForgotten {
		t.damages, t.built, t.disk = 0, 0, n.Disk
	}
	if n.heard == nil || !n.heard.stops {
		return
	}
	for _, r := range n.heard.report.Shards {
		if p, _ := s.view.Placement(r.Shard); r.Stopped != sharding.StopDamaged || !slices.ContainsFunc(p.Replicas, func(m meta.Replica) bool { return m.ID == r.Replica && m.Node == n.Node }) {
			continue
		}
		if r.Replica >= t.built {
			t.damages, t.damaged, t.built = t.damages+1, s.now, s.view.NextReplica()
		}
	}
}

// forgive forgets the damages of a node, as an operator has it resumed.
func (s *stepView) forgive(node sharding.NodeID) {
	if t := s.troubles[node]; t != nil {
		t.damages, t.built = 0, s.view.NextReplica()
	}
}

func (s *stepView) strike(t *trouble) {
	t.unsteady, t.last = true, s.now
	t.strikes++
}

// backOff is how long a node must give no trouble after so many strikes.
func (s *stepView) backOff(strikes int) time.Duration {
	d := s.opts.BackOff
	for ; strikes > 1 && d < s.opts.MaxBackOff; strikes-- {
		d *= 2
	}
	return min(d, s.opts.MaxBackOff)
}

// heir is who takes the shard's leadership when its leader shall not have it;
// nil for nobody. From a node that is slow only a steady one takes it.
func (s *stepView) heir(sh *shard) *node {
	heirs := s.heirs(sh)
	if !sh.leader.outgoing() {
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
