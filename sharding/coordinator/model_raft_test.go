package coordinator_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
)

// group models a raft group: a single log of which every replica holds a
// prefix, membership changes that take effect when they are applied, elections
// among the voters of the candidate's own membership, and joint changes that
// the leader leaves automatically.
type group struct {
	shard    sharding.ShardID
	first    []sharding.ReplicaID
	last     uint64 // last index of the longest log
	commit   uint64
	term     sharding.Term
	leader   sharding.ReplicaID // 0: none
	replicas map[sharding.ReplicaID]*replica
	// ghosts are replicas that their nodes have deleted after they were
	// forgotten, in their last state.
	ghosts map[sharding.ReplicaID]*replica
	confs  []confAt // memberships by log index, the first at index 0
	body   map[uint64][]byte
}

type confAt struct {
	index uint64
	conf
}

type conf struct{ voters, learners, outgoing []sharding.ReplicaID }

// replica is a copy on a node's disk.
type replica struct {
	id             sharding.ReplicaID
	node           *host
	match, applied uint64
	// the commit index that it knows, up to the end of its log
	known uint64
	// stopped is set if the replica has stopped: it is never elected and, if it is
	// damaged, never answers.
	stopped sharding.StopReason
}

func (g *group) confOf(r *replica) conf { return g.confAtIndex(r.applied) }

func (g *group) confAtIndex(index uint64) conf {
	for i := len(g.confs) - 1; i > 0; i-- {
		if g.confs[i].index <= index {
			return g.confs[i].conf
		}
	}
	return g.confs[0].conf
}

// majority reports whether ok holds for a majority of each half of the
// membership.
func (c conf) majority(ok func(sharding.ReplicaID) bool) bool {
	half := func(ids []sharding.ReplicaID) bool {
		n := 0
		for _, id := range ids {
			if ok(id) {
				n++
			}
		}
		return n > len(ids)/2
	}
	return half(c.voters) && (len(c.outgoing) == 0 || half(c.outgoing))
}

func (c conf) votes(id sharding.ReplicaID) bool {
	return slices.Contains(c.voters, id) || slices.Contains(c.outgoing, id)
}

// lead returns the leader if it is running.
func (g *group) lead() *replica {
	r := g.replicas[g.leader]
	if r == nil || !r.node.up() || r.stopped != sharding.NotStopped {
		return nil
	}
	return r
}

// tick advances the group a little.
func (g *group) tick(rng *rand.Rand) {
	l := g.lead()
	if l == nil || l.node.cut && !g.confOf(l).majority(func(id sharding.ReplicaID) bool { return g.hears(l, id) }) {
		g.leader = 0
		g.elect(rng)
		if l = g.lead(); l == nil {
			return
		}
	}
	l.match = g.last
	c := g.confOf(l)
	for _, id := range slices.Concat(c.voters, c.outgoing, c.learners) {
		r := g.replicas[id]
		if r == nil || r == l || !g.hears(l, id) {
			continue
		}
		r.match = min(g.last, r.match+uint64(rng.IntN(12)))
		r.known = max(r.known, min(r.match, g.commit))
		if rng.IntN(3) > 0 {
			g.applyTo(r)
		}
	}
	g.advance(l)
	l.known = g.commit
	if rng.IntN(3) > 0 {
		g.applyTo(l)
	}
	g.leave(l)
}

// advance moves the commit index to the last entry that a majority has.
func (g *group) advance(l *replica) {
	c := g.confOf(l)
	for at := g.last; at > g.commit; at-- {
		if c.majority(func(id sharding.ReplicaID) bool { r := g.replicas[id]; return r != nil && r.match >= at }) {
			g.commit = at
			return
		}
	}
}

func (g *group) applyTo(r *replica) {
	// A replica learns of a joint membership before later entries are committed.
	for r.applied < r.known {
		r.applied++
	}
}

// leave ends a joint membership. A leader that lost its vote continues until it
// transfers leadership.
func (g *group) leave(l *replica) {
	c := g.confOf(l)
	if len(c.outgoing) > 0 && !g.pending(l) {
		g.append(&conf{voters: c.voters, learners: c.learners})
	}
}

// fragile reports whether a change that keeps less than a majority of the
// previous voters is in flight, or is not known to all members. If the leader
// loses its vote in that change and stops before the others know, it may be
// impossible to elect a leader: the others still ask the removed voters, whose
// logs are longer. That is inherent in raft with membership changes that take
// effect when they are applied.
func (g *group) fragile() bool {
	for i := 1; i < len(g.confs); i++ {
		before, after := g.confs[i-1].voters, g.confs[i].voters
		if out := g.confs[i].outgoing; len(out) > 0 {
			before = out
		} else if out := g.confs[i-1].outgoing; len(out) > 0 {
			before = out
		}
		stay := 0
		for _, id := range before {
			if slices.Contains(after, id) {
				stay++
			}
		}
		if stay <= len(before)/2 && g.confs[i].index > g.oldest() {
			return true
		}
	}
	return false
}

func (g *group) pending(l *replica) bool { return g.confs[len(g.confs)-1].index > l.applied }

// append adds an entry; c is nil unless it is a membership change.
func (g *group) append(c *conf) uint64 {
	g.last++
	if c != nil {
		g.confs = append(g.confs, confAt{g.last, *c})
	}
	g.lead().match = g.last
	return g.last
}

func (g *group) hears(from *replica, id sharding.ReplicaID) bool {
	r := g.replicas[id]
	return r != nil && r.node.up() && (r == from || r.stopped != sharding.StopDamaged) &&
		(r.node == from.node || !r.node.cut && !from.node.cut && !r.node.mute && !from.node.mute)
}

// elect makes a replica the leader if a majority of its own membership would
// vote for the replica.
func (g *group) elect(rng *rand.Rand) {
	var able []*replica
	for _, r := range g.sorted() {
		if r.node.up() && g.electable(r, g.replicas, func(v *replica) bool { return g.hears(r, v.id) }) {
			able = append(able, r)
		}
	}
	if len(able) > 0 {
		g.crown(able[rng.IntN(len(able))])
	}
}

func (g *group) sorted() []*replica {
	return slices.SortedFunc(maps.Values(g.replicas), func(a, b *replica) int { return cmp.Compare(a.id, b.id) })
}

// electable reports whether the replica can win an election. It does not
// campaign before it has applied all membership changes that it knows to be
// committed.
func (g *group) electable(r *replica, among map[sharding.ReplicaID]*replica, heard func(*replica) bool) bool {
	c := g.confAtIndex(max(r.applied, r.known))
	return r.stopped == sharding.NotStopped && c.votes(r.id) && c.majority(func(id sharding.ReplicaID) bool {
		v := among[id]
		return v != nil && v.stopped != sharding.StopDamaged && (v == r || heard(v) && v.match <= r.match)
	})
}

// crown begins a term: entries that the new leader does not have are lost.
func (g *group) crown(r *replica) {
	if r.match < g.commit {
		panic(fmt.Sprintf("shard %d: replica %d became leader without entry %d", g.shard, r.id, g.commit))
	}
	g.applyTo(r)
	g.leader = r.id
	g.term++
	g.last = r.match
	for len(g.confs) > 1 && g.confs[len(g.confs)-1].index > g.last {
		g.confs = g.confs[:len(g.confs)-1]
	}
	for i := range g.body {
		if i > g.last {
			delete(g.body, i)
		}
	}
	for _, o := range g.replicas {
		o.match = min(o.match, g.last)
	}
	g.append(nil)
}

// change proposes the change returned by Converge, like ChangeMembers.
func (g *group) change(l *replica, ch coordinator.Change) {
	if g.pending(l) {
		return
	}
	now := g.confOf(l)
	if len(now.outgoing) > 0 {
		return
	}
	next := conf{voters: slices.Clone(now.voters), learners: slices.Clone(now.learners)}
	drop := func(ids []sharding.ReplicaID, id sharding.ReplicaID) []sharding.ReplicaID {
		return slices.DeleteFunc(ids, func(o sharding.ReplicaID) bool { return o == id })
	}
	for _, id := range slices.Concat(ch.AddVoters, ch.AddLearners, ch.Remove) {
		next.voters, next.learners = drop(next.voters, id), drop(next.learners, id)
	}
	next.voters = append(next.voters, ch.AddVoters...)
	next.learners = append(next.learners, ch.AddLearners...)
	if len(ch.AddVoters)+len(ch.AddLearners)+len(ch.Remove) > 1 {
		next.outgoing = now.voters
	}
	g.append(&next)
}

// transfer transfers leadership if the target has the whole log.
func (g *group) transfer(to sharding.ReplicaID) {
	l, r := g.lead(), g.replicas[to]
	if l == nil || r == nil || r == l || !slices.Contains(g.confOf(l).voters, to) || !g.hears(l, to) {
		return
	}
	r.match = g.last
	if g.electable(r, g.replicas, func(v *replica) bool { return g.hears(r, v.id) }) {
		g.crown(r)
	}
}

// alive reports whether a leader can be elected once all nodes that are not
// permanently dead are running and connected.
func (g *group) alive(with map[sharding.ReplicaID]*replica) bool {
	for _, r := range with {
		if !r.node.dead && g.electable(r, with, func(v *replica) bool { return !v.node.dead }) {
			return true
		}
	}
	return false
}

// manned reports whether a majority of the committed voters can vote, now or
// once their nodes run again.
func (g *group) manned() bool {
	return g.confAtIndex(g.commit).majority(func(id sharding.ReplicaID) bool {
		r := g.replicas[id]
		return r != nil && r.counts()
	})
}

// counts reports whether the replica can vote, now or when its node runs again.
func (r *replica) counts() bool { return !r.node.dead && r.stopped != sharding.StopDamaged }
