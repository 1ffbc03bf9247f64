package sim

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
)

// chance returns true once in n calls on average, and never if n is 0.
func (w *World) chance(n int) bool { return n > 0 && w.rng.IntN(n) == 0 }

// faults sometimes injects a fault.
func (w *World) faults() {
	p := &w.profile
	if w.chance(p.crash) {
		w.breakNode(w.nodes[w.rng.IntN(len(w.nodes))])
	}
	for _, n := range w.nodes {
		if !n.up && w.chance(w.profile.absence()) {
			n.restart()
		}
	}
	if w.chance(p.partition) {
		w.partition()
	}
	if w.chance(150) {
		w.bound++
		w.note("bind %d", w.bound)
	}
	if len(w.cut) > 0 && w.chance(w.profile.heal) {
		clear(w.cut)
		w.note("healed")
	}
	if w.chance(p.pause) {
		w.count.pauses++
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		n.paused = w.step + w.rng.IntN(200)
		w.note("pause %d %d", n.id, n.paused)
	}
	if w.chance(p.stall) {
		w.count.stalls++
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		n.stalled = w.step + w.rng.IntN(300)
		w.note("stall %d %d", n.id, n.stalled)
	}
	if w.meta != nil && w.chance(p.wipe) {
		w.wipe(w.nodes[w.rng.IntN(len(w.nodes))])
	}
	if o := &w.older; o.often > 0 && o.rng.IntN(o.often) == 0 {
		w.putBack(w.nodes[o.rng.IntN(len(w.nodes))])
	}
	if w.chance(p.transfer) {
		w.transfer(w.shards[w.rng.IntN(len(w.shards))])
	}
	for _, s := range w.shards {
		if w.chance(p.members) {
			w.changeMembers(s)
		}
	}
}

// breakNode kills a process, cuts its power, or cuts the power in the middle of
// one of its next writes.
func (w *World) breakNode(n *node) {
	if !n.up {
		return
	}
	switch w.rng.IntN(4) {
	case 0:
		n.crash(false)
	case 1:
		n.crash(true)
	default:
		n.disk.CutAfter(w.rng.IntN(6))
	}
}

// partition cuts the links between a random set of nodes and the rest,
// sometimes in one direction only.
func (w *World) partition() {
	w.count.cuts++
	clear(w.cut)
	oneWay := w.rng.IntN(3) == 0
	side := w.rng.IntN(1 << len(w.nodes))
	if n := w.leader(w.shards[w.rng.IntN(len(w.shards))]); n != nil && w.rng.IntN(2) == 0 {
		side = 1 << n.id
	}
	for a := range w.nodes {
		for b := range w.nodes {
			if side>>a&1 == 1 && side>>b&1 == 0 {
				w.cut[[2]int{a, b}] = true
				if !oneWay {
					w.cut[[2]int{b, a}] = true
				}
			}
		}
	}
	w.note("partition %b %v", side, oneWay)
}

// leader returns the node whose executor is active for the shard, or, if there
// are several such nodes, the node with the highest term.
func (w *World) leader(s sharding.ShardID) *node {
	var best *node
	for _, n := range w.nodes {
		if n.up && n.paused <= w.step && n.executors[s].active && (best == nil || n.executors[s].term > best.executors[s].term) {
			best = n
		}
	}
	return best
}

func (w *World) transfer(s sharding.ShardID) {
	if n := w.leader(s); n != nil {
		to := w.replica(s, w.rng.IntN(len(w.nodes)))
		if to == 0 {
			return
		}
		w.count.transfers++
		// The raft core may no longer be the leader although the executor still
		// is active; then the call fails.
		_ = n.driver.Core().TransferLeader(s, to)
	}
}

// changeMembers changes a shard from one voter to all of them through learners
// and one joint change, then makes a voter a learner and back.
func (w *World) changeMembers(s sharding.ShardID) {
	n := w.leader(s)
	if n == nil || len(w.nodes) == 1 {
		return
	}
	status, err := n.driver.Core().Status(s)
	if err != nil || len(status.Outgoing) > 0 || status.Match == nil {
		return
	}
	var change raftgroup.Change
	missing, caughtUp := 0, true
	for i := range w.nodes {
		id := w.replica(s, i)
		match, ok := status.Match[id]
		if !ok {
			missing++
			change.AddLearners = append(change.AddLearners, id)
		}
		caughtUp = caughtUp && ok && match >= status.Commit
	}
	switch {
	case missing > 0:
	case !caughtUp:
		return
	case len(status.Learners) > 0:
		delete(w.joining, s) // from now on, every replica has the entries that a leader may truncate
		w.joined[s] = true
		change.AddVoters = status.Learners
	default:
		change.AddLearners = []sharding.ReplicaID{w.replica(s, w.rng.IntN(len(w.nodes)))}
	}
	slices.Sort(change.AddVoters)
	if err := n.driver.Core().ChangeMembers(s, n.executors[s].term, change); err == nil {
		w.count.changes++
		w.note("members %d %v", s, change)
	}
}
