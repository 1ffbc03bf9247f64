package coordinator_test

import (
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

func (w *world) tick() {
	w.now = w.now.Add(tickTime)
	for id := range sharding.ShardID(shards + 1) {
		g := w.groups[id]
		if g == nil {
			continue
		}
		if l := g.lead(); l != nil && w.rng.IntN(3) == 0 && !w.quiet {
			for range 1 + w.rng.IntN(8) {
				g.append(nil)
			}
		}
		g.tick(w.rng)
	}
	w.commit()
	w.noteRipe()
	for _, h := range w.hosts {
		if h.up() && !h.gone {
			w.run(h)
		}
	}
	w.coordinate()
	w.commit()
	w.check()
}

func (w *world) noteRipe() {
	for _, g := range w.groups {
		if l := g.lead(); l != nil {
			for _, id := range slices.Concat(g.confOf(l).voters, g.confOf(l).learners) {
				if r := g.replicas[id]; r != nil && coordinator.IsCaughtUp(r.match, g.commit) {
					w.ripe[id] = true
				}
			}
		}
	}
}

// run is the host's loop.
func (w *world) run(h *host) {
	l := w.metaLead()
	reaches := l != nil && h.linked()
	r := w.groups[0].on(h)
	if h.leaving && h.member && (w.rejoin[h.id] || r == nil) {
		h.gone = true // the host has left
		return
	}
	if reaches && (!h.member || w.rejoin[h.id] || r == nil) && w.rng.IntN(3) == 0 {
		w.propose(meta.Join(w.describe(h)))
	}
	if r == nil || !h.member {
		return
	}
	if !h.caught.known {
		if reaches {
			h.caught = catch{index: w.groups[0].commit, known: true}
		}
		return
	}
	v := w.view(h)
	if r.applied < h.caught.index || v == nil {
		if reaches && w.rng.IntN(8) == 0 {
			w.propose(meta.Join(w.describe(h))) // the host may not be a member
		}
		return
	}
	if m, known := v.Member(h.id); !known || m.Disk != w.describe(h).Disk {
		if known || !h.leaving {
			return
		}
		h.gone = true
		return
	}
	if w.rng.IntN(2) == 0 {
		w.reconcile(h, v, r.applied, reaches)
	}
	if w.rng.IntN(2) == 0 && reaches {
		w.send(h, v)
	}
}

// reconcile is a node's reconciliation pass.
func (w *world) reconcile(h *host, v *meta.View, applied uint64, reaches bool) {
	for _, p := range v.HostedBy(h.id) {
		g := w.group(p.Shard, p.First)
		if g.on(h) == nil && p.Replica.State != meta.ReplicaLeaving {
			w.create(h, g, p.Replica.ID)
		}
	}
	for id := range sharding.ShardID(shards + 1) {
		g := w.groups[id]
		if g == nil {
			continue
		}
		if r := g.on(h); r != nil {
			if _, placed := v.ReplicaNode(g.shard, r.id); !placed {
				w.remove(g, r)
			}
		}
		l := g.lead()
		if l == nil || l.node != h {
			delete(h.led, g.shard)
			continue
		}
		c := h.led[g.shard]
		if c.term != g.term {
			if !reaches && !w.sabotage.stale {
				continue
			}
			c = catch{term: g.term, index: w.groups[0].commit}
			h.led[g.shard] = c
		}
		if applied >= c.index || w.sabotage.stale {
			w.converge(g, l, v)
		}
	}
	h.passed = applied
}

func (w *world) converge(g *group, l *replica, v *meta.View) {
	p, placed := v.Placement(g.shard)
	if !placed {
		return
	}
	c := g.confOf(l)
	in := coordinator.Conf{Self: l.id, Voters: c.voters, Learners: c.learners, Outgoing: c.outgoing, Match: g.matches(l), Commit: g.commit, Next: v.NextReplica()}
	for _, id := range slices.Concat(c.voters, c.learners) {
		if node, ok := v.ReplicaNode(g.shard, id); ok && (!w.hears(l.node, node) || !g.hears(l, id)) {
			in.Unreachable = append(in.Unreachable, id)
		}
	}
	ch, needed := w.sabotage.converge(p, in)
	if !needed {
		return
	}
	if ch.Transfer != 0 {
		g.transfer(ch.Transfer)
		return
	}
	w.judgeChange(g, l, c, ch)
	g.change(l, ch)
	w.stats["changes"]++
}

func (g *group) matches(l *replica) map[sharding.ReplicaID]uint64 {
	out := map[sharding.ReplicaID]uint64{}
	c := g.confOf(l)
	for _, id := range slices.Concat(c.voters, c.outgoing, c.learners) {
		out[id] = 0
		if r := g.replicas[id]; r != nil {
			out[id] = r.match
		}
	}
	return out
}

func (w *world) hears(h *host, id sharding.NodeID) bool {
	o := w.host(id)
	return o == h || o != nil && h.linked() && o.linked() && !o.gone
}

// send reports to the coordinator; reports may be delayed or lost.
func (w *world) send(h *host, v *meta.View) {
	h.seq++
	r := coordinator.Report{Node: h.id, Incarnation: h.incarnation, Seq: h.seq, View: h.passed, Draining: h.draining, Pace: h.pace}
	for id := range sharding.ShardID(shards + 1) {
		g := w.groups[id]
		if g == nil {
			continue
		}
		mine := g.on(h)
		if mine == nil {
			continue
		}
		r.Replicas++
		p, placed := v.Placement(id)
		l := g.lead()
		leads := l == mine
		if !placed || !coordinator.MustReport(p, leads) && mine.stopped == sharding.NotStopped {
			continue
		}
		s := coordinator.ShardReport{Shard: id, Replica: mine.id, Term: g.term, Leader: leads, Commit: mine.known, Applied: mine.applied, Last: mine.match, Stopped: mine.stopped}
		if leads {
			c := g.confOf(mine)
			s.Voters, s.Learners, s.Outgoing, s.Match, s.Commit, s.Last = c.voters, c.learners, c.outgoing, g.matches(mine), g.commit, g.last
			for id, match := range s.Match {
				w.ripe[id] = w.ripe[id] || coordinator.IsCaughtUp(match, s.Commit)
			}
		}
		w.baffled[mine.id] = w.baffled[mine.id] || mine.stopped == sharding.StopUnsupported
		r.Shards = append(r.Shards, s)
	}
	if w.sabotage.report != nil {
		w.sabotage.report(&r)
	}
	if w.quiet || w.rng.IntN(6) > 0 {
		w.messages = append(w.messages, message{w.now.Add(time.Duration(w.rng.IntN(4)) * tickTime), r})
	}
	for _, t := range w.moves[h.id] {
		g := w.groups[t.Shard]
		if l := g.lead(); l != nil && l.node == h {
			if to := g.on(w.host(t.To)); to != nil {
				g.transfer(to.id)
				w.stats["transfers"]++
			}
		}
	}
	delete(w.moves, h.id)
}

// coordinate runs a step on the leader of the metadata shard.
func (w *world) coordinate() {
	g := w.groups[0]
	l := w.metaLead()
	if l == nil || !l.node.member {
		return
	}
	if w.at != l.node || w.term != g.term {
		w.at, w.term = l.node, g.term
		w.coord = coordinator.New(coordinator.Options{Strategy: recounted{}, DeadAfter: modelDead, MaxMovesInFlight: maxBuilds, MaxMovesPerNode: maxOnNode})
		w.operations, w.moves = nil, map[sharding.NodeID][]coordinator.Transfer{}
		w.stats["coordinators"]++
	}
	if g.last != g.commit || l.applied != g.commit || w.views[l.applied] == nil {
		return // earlier commands are still in flight
	}
	in := coordinator.Input{Now: w.now, View: w.views[l.applied], Operations: w.operations, Reachable: map[sharding.NodeID]bool{}}
	w.operations = nil
	for _, h := range w.hosts {
		in.Reachable[h.id] = w.hears(l.node, h.id) && !h.apart
	}
	w.messages = slices.DeleteFunc(w.messages, func(m message) bool {
		if m.due.After(w.now) {
			return false
		}
		if h := w.host(m.report.Node); w.hears(l.node, h.id) && !h.apart {
			in.Reports = append(in.Reports, m.report)
		}
		return true
	})
	plan := w.coord.Step(in)
	if w.sabotage.plan != nil {
		w.sabotage.plan(w, &plan)
	}
	for _, c := range plan.Commands {
		w.propose(c)
		w.stats["commands"]++
	}
	for _, t := range plan.Transfers {
		p, _ := in.View.Placement(t.Shard)
		if r, ok := p.ReplicaOn(t.To); !ok || r.State != meta.ReplicaVoter {
			w.fail("shard %d: leadership is to go to %+v: %s", t.Shard, r, w.draw(w.groups[t.Shard]))
		}
		if m, _ := in.View.Member(t.To); m.Status != meta.StatusUp || !in.Reachable[t.To] {
			w.fail("shard %d: leadership is to go to %+v", t.Shard, m)
		}
		w.moves[t.From] = append(w.moves[t.From], t)
	}
	w.troubles = plan.Impairments
	w.pending = plan.Pending
	for _, id := range plan.Rejoin {
		w.rejoin[id] = true
	}
	for _, p := range plan.Progress {
		w.done[p.ID] = p
	}
}
