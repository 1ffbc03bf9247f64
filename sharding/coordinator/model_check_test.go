package coordinator_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
)

// remove deletes a forgotten replica, as its node does. The group must not need
// it, even if any single node dies now.
func (w *world) remove(g *group, r *replica) {
	var before []bool
	each := func(check func(i int, h *host)) {
		for i, h := range append([]*host{{}}, w.hosts...) {
			dead := h.dead
			h.dead = true
			check(i, h)
			h.dead = dead
		}
	}
	each(func(int, *host) { before = append(before, g.manned() && g.alive(g.replicas)) })
	delete(g.replicas, r.id)
	g.ghosts[r.id] = r
	each(func(i int, h *host) {
		if before[i] && !g.alive(g.replicas) && r.node != h {
			w.fail("shard %d can elect no leader without replica %d, which was deleted, if node %q dies: %s", g.shard, r.id, h.id, w.draw(g))
		}
	})
}

// judgeChange checks a change against the state of the whole model.
func (w *world) judgeChange(g *group, l *replica, now conf, ch coordinator.Change) {
	voters := slices.Concat(slices.DeleteFunc(slices.Clone(now.voters), func(id sharding.ReplicaID) bool {
		return slices.Contains(ch.Remove, id) || slices.Contains(ch.AddLearners, id)
	}), ch.AddVoters)
	good := 0
	for _, id := range voters {
		if r := g.replicas[id]; r != nil && g.hears(l, id) && coordinator.IsCaughtUp(r.match, g.commit) {
			good++
		}
	}
	if votes := len(ch.AddVoters) > 0 || !slices.Equal(voters, now.voters); votes && good <= len(voters)/2 {
		w.fail("shard %d: %+v leaves voters %v, %d of them work: %s", g.shard, ch, voters, good, w.draw(g))
	}
	for _, id := range ch.AddVoters {
		if r := g.replicas[id]; r == nil || !coordinator.IsCaughtUp(r.match, g.commit) {
			w.fail("shard %d: replica %d is to vote and has not caught up: %s", g.shard, id, w.draw(g))
		}
	}
}

// check checks the invariants.
func (w *world) check() {
	v := w.state.View()
	for _, p := range v.Placements() {
		on := map[sharding.NodeID]bool{}
		for _, r := range p.Replicas {
			if !r.Lost && on[r.Node] {
				w.fail("shard %d has two replicas on %s", p.Shard, r.Node)
			}
			on[r.Node] = on[r.Node] || !r.Lost
		}
		g := w.groups[p.Shard]
		if g == nil {
			continue
		}
		c := g.confAtIndex(g.commit)
		for _, id := range slices.Concat(c.voters, c.learners, c.outgoing) {
			if _, known := p.Replica(id); !known {
				w.fail("replica %d of shard %d was forgotten and is a member: %s", id, p.Shard, w.draw(g))
			}
		}
		if len(g.ghosts) == 0 || !g.manned() || g.alive(g.replicas) {
			continue
		}
		all := maps.Clone(g.replicas)
		maps.Copy(all, g.ghosts)
		if g.alive(all) {
			w.fail("shard %d can elect no leader, and could with what was deleted: %s", p.Shard, w.draw(g))
		}
	}
}

// draw formats a group.
func (w *world) draw(g *group) string {
	p, _ := w.state.View().Placement(g.shard)
	out := fmt.Sprintf("\nshard %d: commit %d, last %d, leader %d, term %d, placement %v, members at commit %+v\n", g.shard, g.commit, g.last, g.leader, g.term, p.Replicas, g.confAtIndex(g.commit))
	for _, r := range g.sorted() {
		out += fmt.Sprintf("  %d on %s up=%v cut=%v dead=%v stopped=%q match=%d applied=%d members %+v\n", r.id, r.node.id, r.node.up(), r.node.cut, r.node.dead, r.stopped, r.match, r.applied, g.confOf(r))
	}
	for _, id := range slices.SortedFunc(maps.Keys(g.ghosts), cmp.Compare[sharding.ReplicaID]) {
		out += fmt.Sprintf("  ghost %d on %s applied=%d\n", id, g.ghosts[id].node.id, g.ghosts[id].applied)
	}
	return out
}
