package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/hostd/hostd/journal/disk/disktest"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// absence returns the mean number of steps for which a node stays down.
func (p *profile) absence() int { return max(60, p.away) }

// wipe destroys a node's disk if every shard can permanently do without it. The
// node returns with an empty disk, and its old replicas never come back. It is
// therefore not enough that a quorum of the current membership remains. More
// replicas must remain, and they must have applied that membership. A replica
// that has only received the proposal of the last change still needs a quorum
// of the previous voters.
func (w *World) wipe(n *node) {
	if !n.up || w.anyBehind() || !w.doesWithout(n) {
		return
	}
	n.crash(true)
	n.renew()
	w.count.wiped++
	w.note("wiped %d", n.id)
}

// renew gives a node an empty disk.
func (n *node) renew() {
	w := n.w
	n.gov.disk++
	n.disk = disktest.NewCrashable(rand.New(rand.NewPCG(w.Seed, uint64(1000*n.gov.disk+n.id))))
	n.store = newMemStore(w)
	n.machine = newMachine(n)
	if w.older.often > 0 {
		n.gov.incarnation += perStep // greater than any incarnation that the node asked about
		n.starts, n.copied, n.behind = starts{}, nil, false
	}
}

// doesWithout reports whether every shard can permanently do without a node's
// disk.
func (w *World) doesWithout(n *node) bool {
	for i, other := range w.nodes {
		// Until a node with a new disk has reported it, the metadata does not
		// show which replicas that node has lost.
		if m, _ := w.meta.state.View().Member(w.name(i)); m.Disk != other.describe().Disk {
			return false
		}
	}
	for _, s := range w.shards {
		leader := w.leader(s)
		if leader == nil {
			return false
		}
		st, err := leader.driver.Core().Status(s)
		p, _ := w.meta.state.View().Placement(s)
		lost := slices.ContainsFunc(p.Replicas, func(r meta.Replica) bool { return r.Lost })
		if err != nil || lost || !w.asPlaced(s) || len(st.Voters) < 3 {
			return false
		}
		aware := 0
		for _, other := range w.nodes {
			if has, err := other.driver.Core().Status(s); other != n && other.up && err == nil && len(has.Outgoing) == 0 && slices.Equal(has.Voters, st.Voters) {
				aware++
			}
		}
		if aware <= len(st.Voters)/2 {
			return false
		}
	}
	return true
}

// asPlaced reports whether the members of a shard's group match its placement.
func (w *World) asPlaced(s sharding.ShardID) bool {
	p, placed := w.meta.state.View().Placement(s)
	leader := w.leader(s)
	if !placed || leader == nil || slices.ContainsFunc(p.Replicas, func(r meta.Replica) bool { return r.State != meta.ReplicaVoter }) {
		return false
	}
	st, err := leader.driver.Core().Status(s)
	want := p.IDs(meta.ReplicaVoter)
	slices.Sort(want)
	have := slices.Sorted(slices.Values(st.Voters))
	return err == nil && len(st.Outgoing)+len(st.Learners) == 0 && slices.Equal(want, have)
}

// inPlace reports whether every replica is on the node where the metadata
// places it, and on no other node.
func (w *World) inPlace() bool {
	for _, m := range w.meta.state.View().Members() {
		if m.Status != meta.StatusUp {
			return false
		}
	}
	for _, s := range w.shards {
		if !w.asPlaced(s) {
			return false
		}
		for i, n := range w.nodes {
			st, err := n.driver.Core().Status(s)
			if id := w.replica(s, i); n.up && (err == nil) != (id != 0) || err == nil && st.Replica != id {
				return false
			}
		}
	}
	return true
}

// pardon restarts the nodes that an operator has marked down, whether they are
// still members or have been removed, because only a new process brings them
// back.
func (w *World) pardon() {
	for i, n := range w.nodes {
		if n.up && w.meta.state.View().IsDowned(w.name(i), n.gov.incarnation) {
			n.crash(false)
			n.restart()
		}
	}
}
