package coordinator_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

var (
	seeds = flag.Int("seeds", 200, "how many seeds the model runs")
	seed  = flag.Uint64("seed", 0, "the one seed to run; 0 for all")
)

// disturb injects random faults.
func (w *world) disturb() {
	h := w.hosts[w.rng.IntN(len(w.hosts))]
	if h.dead || h.gone {
		return
	}
	for _, g := range w.groups {
		if g.fragile() && g.on(h) != nil {
			return
		}
	}
	switch w.rng.IntN(40) {
	case 0, 1, 2:
		h.running = false
	case 3, 4, 5, 6, 7:
		w.restart(h)
	case 8, 9:
		h.cut = true
	case 10, 11, 12, 13:
		h.cut = false
	case 14:
		if w.spares(h) {
			w.stats["wipes"]++
			w.wipe(h)
			w.restart(h)
		}
	case 15:
		if w.spares(h) && w.rng.IntN(3) == 0 {
			w.stats["deaths"]++
			h.dead = true
		}
	case 16, 17:
		if len(w.hosts) < 7 {
			w.addHost()
		}
	case 18, 19, 20:
		w.disturbLead(h)
	case 21, 22, 23, 24:
		w.operate(h)
	case 25, 26, 27, 28, 29, 30:
		w.damage(h)
	}
}

// damage stops a replica of the host if its group does not need it.
func (w *world) damage(h *host) {
	g := w.groups[sharding.ShardID(1+w.rng.IntN(shards))]
	if g == nil || g.on(h) == nil || g.on(h).stopped != sharding.NotStopped || !w.spares(h) {
		return
	}
	g.on(h).stopped = sharding.StopReason(1 + w.rng.IntN(2))
	w.stats["damages"]++
}

func (w *world) restart(h *host) {
	if h.running {
		return
	}
	h.running, h.member, h.caught, h.passed, h.draining = true, false, catch{}, 0, false
	h.incarnation++
	clear(h.led)
	for _, g := range w.groups {
		if r := g.on(h); r != nil {
			r.stopped = sharding.NotStopped // until the restarted node detects the damage again
		}
	}
}

// wipe destroys the host's disk.
func (w *world) wipe(h *host) {
	h.running = false
	h.disk++
	for _, g := range w.groups {
		for _, r := range g.sorted() {
			if r.node == h {
				delete(g.replicas, r.id)
			}
		}
		for id, r := range g.ghosts {
			if r.node == h {
				delete(g.ghosts, id)
			}
		}
	}
}

// spares reports whether every group can do without the host.
func (w *world) spares(h *host) bool {
	dead := h.dead
	defer func() { h.dead = dead }()
	h.dead = true
	hosts := 0
	for _, o := range w.hosts {
		if !o.dead && !o.gone && !o.leaving {
			hosts++
		}
	}
	for _, p := range w.state.View().Placements() {
		g := w.groups[p.Shard]
		if g == nil || !g.alive(g.replicas) || slices.ContainsFunc(p.First, func(id sharding.ReplicaID) bool { _, made := w.born[id]; return !made }) {
			return false
		}
		for i, c := range g.confs { // a change in flight may need the host
			if i+1 < len(g.confs) && g.confs[i+1].index <= g.oldest() {
				continue
			}
			if !c.majority(func(id sharding.ReplicaID) bool { r := g.replicas[id]; return r != nil && r.counts() }) {
				return false
			}
		}
	}
	return hosts >= 3 && w.groups[0].last == w.index && len(w.state.View().Placements()) == shards+1
}

// oldest returns the lowest applied index of all replicas.
func (g *group) oldest() uint64 {
	low := g.commit
	for _, r := range g.replicas {
		low = min(low, r.applied)
	}
	return low
}

// disturbLead changes the leader of a shard.
func (w *world) disturbLead(h *host) {
	for s := range sharding.ShardID(shards + 1) {
		if g := w.groups[s]; g != nil && w.rng.IntN(3) == 0 && !g.fragile() {
			if r := g.on(h); r != nil && r.node.linked() && g.electable(r, g.replicas, func(v *replica) bool { return g.hears(r, v.id) }) {
				g.crown(r)
			}
		}
	}
}

func (w *world) operate(h *host) {
	o := coordinator.Operation{ID: uint64(len(w.done)+len(w.operations)) + 1000*w.index, Node: h.id, Shard: sharding.ShardID(1 + w.rng.IntN(shards))}
	switch w.rng.IntN(12) {
	case 0, 1, 2, 3:
		o.Kind = coordinator.OperationMove
	case 4:
		o.Kind = coordinator.OperationDrain
	case 5:
		o.Kind = coordinator.OperationResume
	case 6:
		stay := 0
		for _, other := range w.hosts {
			if !other.dead && !other.leaving && !other.gone && other.member {
				stay++
			}
		}
		if stay < 3 {
			return
		}
		o.Kind = coordinator.OperationLeave
		h.leaving = true
		w.stats["leaves"]++
	case 7:
		if h.dead {
			o.Kind = coordinator.OperationDown
		}
	case 8:
		o.Kind = coordinator.OperationRebalance
	case 9:
		w.propose(meta.PutPolicy(meta.Policy{Replication: []int{1, 3, 3, 5}[w.rng.IntN(4)], MinMembers: 1, Rebalance: w.rng.IntN(3) > 0}))
		return
	case 10:
		h.draining = !h.draining
		return
	}
	if o.Kind != 0 {
		w.operations = append(w.operations, o)
	}
}

// settle ends transient faults, and returns a description of the problems that
// remain after the limit.
func (w *world) settle(limit int) string {
	w.quiet = true
	for _, h := range w.hosts {
		h.cut, h.draining = false, false
		if !h.dead && !h.gone {
			w.restart(h)
		}
	}
	why := "nothing was looked at"
	calm, want := 0, meta.Policy{Replication: 3, MinMembers: 1, Rebalance: true}
	for i := range limit {
		if i%200 == 0 {
			w.operations = append(w.operations, coordinator.Operation{ID: 1<<61 + uint64(i), Kind: coordinator.OperationRebalance})
			for _, h := range w.hosts {
				if !h.leaving {
					w.operations = append(w.operations, coordinator.Operation{ID: 1<<60 + uint64(i), Kind: coordinator.OperationResume, Node: h.id})
				}
			}
		}
		if got, _ := w.state.View().Policy(); got != want && w.rng.IntN(20) == 0 {
			w.propose(meta.PutPolicy(want))
		}
		w.tick()
		if w.fault != "" {
			return w.fault
		}
		if why = w.unsettled(); why == "" {
			why = w.stillPending()
		}
		if why != "" {
			calm = 0
		} else if calm++; calm > 15 {
			return ""
		}
	}
	return why
}

// stillPending returns an operation that is still listed although nothing is
// left to do. Operations may stay pending if the cluster does not have enough
// nodes, or if a node cannot read a log.
func (w *world) stillPending() string {
	hosts := 0
	for _, m := range w.state.View().Members() {
		if w.behind(w.state.View(), m.Node) {
			return ""
		}
		if m.Status == meta.StatusUp && !w.host(m.Node).dead {
			hosts++
		}
	}
	for _, p := range w.pending {
		if p.Kind != coordinator.PendingDrain && p.Kind != coordinator.PendingRebalance && hosts >= 3 {
			return fmt.Sprintf("pending although all is settled: %+v", p)
		}
	}
	return ""
}

// unsettled describes the work that the cluster still has to do.
func (w *world) unsettled() string {
	v := w.state.View()
	hosts := 0
	for _, m := range v.Members() {
		h := w.host(m.Node)
		switch {
		case h.dead && m.Status == meta.StatusUp:
			return fmt.Sprintf("%s is dead and up", m.Node)
		case h.dead:
		case h.leaving && m.Status != meta.StatusLeaving:
			return "" // the operation was lost with its coordinator
		case m.Status == meta.StatusUp:
			hosts++
		case m.Status != meta.StatusLeaving:
			return fmt.Sprintf("%s is %s", m.Node, m.Status)
		}
	}
	leaders := map[sharding.NodeID]int{}
	for s := range sharding.ShardID(shards + 1) {
		p, placed := v.Placement(s)
		if !placed {
			return fmt.Sprintf("shard %d has no replicas yet", s)
		}
		g := w.groups[s]
		if g == nil || g.lead() == nil {
			return fmt.Sprintf("shard %d has no leader", s)
		}
		leaders[g.lead().node.id]++
		if why := w.short(v, p, g, hosts); why != "" {
			return why
		}
	}
	for _, m := range v.Members() {
		if m.Status == meta.StatusLeaving && hosts > 0 {
			return fmt.Sprintf("%s is still leaving", m.Node)
		}
	}
	return w.uneven(v, hosts, leaders)
}

func (w *world) short(v *meta.View, p meta.Placement, g *group, hosts int) string {
	for _, id := range p.IDs(meta.ReplicaLearner) {
		if r := g.replicas[id]; p.Shard != 0 && r != nil && r.stopped == sharding.StopUnsupported {
			hosts-- // no replica can be built on that host
		}
	}
	for _, m := range v.Members() {
		if _, on := p.ReplicaOn(m.Node); !on && m.Status == meta.StatusUp && !w.host(m.Node).dead && w.behind(v, m.Node) {
			hosts-- // the host gets no replica until it can read its logs
		}
	}
	want := max(1, (min(hosts, 3)-1)/2*2+1)
	live := 0
	for _, r := range p.Replicas {
		m, ok := v.Member(r.Node)
		switch {
		case r.State == meta.ReplicaLeaving:
			return fmt.Sprintf("replica %d of shard %d is still leaving", r.ID, p.Shard)
		case r.State == meta.ReplicaVoter && ok && m.Status == meta.StatusUp && !w.host(r.Node).dead && !r.Lost && (g.replicas[r.ID] == nil || g.replicas[r.ID].stopped != sharding.StopDamaged):
			live++
		}
	}
	c := g.confOf(g.lead())
	switch {
	case live < want:
		return fmt.Sprintf("shard %d has %d live voters of %d", p.Shard, live, want)
	case len(c.voters) != len(p.IDs(meta.ReplicaVoter)) || len(c.outgoing) > 0:
		return fmt.Sprintf("the voters of shard %d are not what its placement says", p.Shard)
	case p.Shard != 0 && len(p.Replicas) != len(c.voters)+len(c.learners):
		return fmt.Sprintf("shard %d is not what its placement says", p.Shard)
	case hosts >= 3 && p.Shard != 0 && len(p.Replicas) != 3:
		return fmt.Sprintf("shard %d has %d copies", p.Shard, len(p.Replicas))
	}
	return ""
}

// behind reports whether a node has a replica that cannot read its log.
func (w *world) behind(v *meta.View, node sharding.NodeID) bool {
	for s := sharding.ShardID(1); s <= shards; s++ {
		p, _ := v.Placement(s)
		r, on := p.ReplicaOn(node)
		if g := w.groups[s]; on && g != nil && g.replicas[r.ID] != nil && g.replicas[r.ID].stopped == sharding.StopUnsupported {
			return true
		}
	}
	return false
}

// uneven reports whether leaderships differ by more than the threshold.
func (w *world) uneven(v *meta.View, hosts int, leaders map[sharding.NodeID]int) string {
	if hosts < 3 {
		return ""
	}
	for _, h := range w.hosts {
		if m, ok := v.Member(h.id); ok && m.Status == meta.StatusLeaving && leaders[h.id] > 0 {
			return fmt.Sprintf("%s leaves and leads", h.id)
		}
	}
	data := map[sharding.NodeID]int{}
	for s := sharding.ShardID(1); s <= shards; s++ {
		data[w.groups[s].lead().node.id]++
	}
	for n, most := range data {
		for s := sharding.ShardID(1); s <= shards; s++ {
			if g := w.groups[s]; g.lead().node.id == n {
				for _, id := range g.confOf(g.lead()).voters {
					if r := g.replicas[id]; r != nil && most-data[r.node.id] >= 2 && w.troubleOf(r.node.id).Damages == 0 {
						return fmt.Sprintf("%s leads %d shards and %s %d", n, most, r.node.id, data[r.node.id])
					}
				}
			}
		}
	}
	return ""
}

// play runs the model with one seed and returns a description of the first
// failure.
func play(seed uint64, m sabotage) (string, *world) {
	w := newWorld(seed, m)
	for range 30 + w.rng.IntN(200) {
		if w.fault != "" {
			break
		}
		w.disturb()
		w.tick()
	}
	if w.fault != "" {
		return w.fault, w
	}
	return w.settle(1500), w
}

// A cluster under random faults keeps its invariants at all times and recovers
// completely after the faults end.
func TestModel(t *testing.T) {
	if *seed != 0 {
		if fault, w := play(*seed, sabotage{}); fault != "" {
			for _, m := range w.state.View().Members() {
				h := *w.host(m.Node)
				h.led = nil
				t.Logf("%+v\n%+v", m, h)
			}
			for s := range sharding.ShardID(shards + 1) {
				if g := w.groups[s]; g != nil {
					t.Log(w.draw(g))
				} else {
					p, _ := w.state.View().Placement(s)
					t.Logf("%+v", p)
				}
			}
			t.Fatalf("seed %d: %s", *seed, fault)
		}
		return
	}
	n := *seeds
	if testing.Short() {
		n = min(n, 40)
	}
	first := rand.Uint64N(1<<40) + 1
	t.Logf("seeds %d to %d; run one with -seed", first, first+uint64(n)-1)
	total := map[string]int{}
	for i := range uint64(n) {
		fault, w := play(first+i, sabotage{})
		if fault != "" {
			t.Fatalf("seed %d: %s", first+i, fault)
		}
		for k, n := range w.stats {
			total[k] += n
		}
	}
	t.Logf("%v", total)
	for _, k := range []string{"changes", "transfers", "coordinators", "wipes", "deaths", "leaves", "damages"} {
		if total[k] < n/20-5 {
			t.Errorf("only %d %s in %d seeds: the model does too little", total[k], k, n)
		}
	}
}

// The model detects each sabotage of the tested code.
func TestModelDetectsSabotage(t *testing.T) {
	for name, m := range sabotages() {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			for seed := m.from; seed < m.from+20000; seed++ {
				if fault, _ := play(seed, m); fault != "" {
					t.Logf("seed %d: %s", seed, strings.SplitN(fault, "\n", 2)[0])
					return
				}
			}
			t.Error("not found")
		})
	}
}

func sabotages() map[string]sabotage {
	return map[string]sabotage{
		"promotes before it caught up": {
			converge: func(p meta.Placement, c coordinator.Conf) (coordinator.Change, bool) {
				for id := range c.Match {
					c.Match[id] = c.Commit
				}
				c.Unreachable = nil
				return coordinator.Converge(p, c)
			},
			report: func(r *coordinator.Report) {
				for i := range r.Shards {
					for id := range r.Shards[i].Match {
						r.Shards[i].Match[id] = r.Shards[i].Commit
					}
				}
			},
		},
		"removes before it promotes": {converge: func(p meta.Placement, c coordinator.Conf) (coordinator.Change, bool) {
			for _, id := range p.IDs(meta.ReplicaLeaving) {
				if slices.Contains(c.Voters, id) && len(c.Voters) > 1 && len(c.Outgoing) == 0 {
					return coordinator.Change{Remove: []sharding.ReplicaID{id}}, true
				}
			}
			return coordinator.Converge(p, c)
		}},
		"forgets what is still a member": {plan: func(w *world, plan *coordinator.Plan) {
			for _, p := range w.state.View().Placements() {
				if ids := p.IDs(meta.ReplicaLeaving); len(ids) > 0 {
					plan.Commands = append(plan.Commands, meta.Forget(p.Shard, ids...))
				}
			}
		}},
		"forgets before the voters know": {from: 8960, report: func(r *coordinator.Report) {
			for i := range r.Shards {
				if !r.Shards[i].Leader {
					r.Shards[i].Applied = 1 << 40
				}
			}
		}},
		"takes any report for a new one": {from: 260, report: func(r *coordinator.Report) {
			r.View = 1 << 40
			for i := range r.Shards {
				r.Shards[i].Applied = 1 << 40
			}
		}},
	}
}
