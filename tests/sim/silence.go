package sim

import "github.com/hostd/hostd/host/peer"

// patience is the time for which a node considers another node alive, in ticks
// of its own clock: Suspect without receiving anything from it, and Stall while
// its loop makes no progress. Clocks and links differ so much that a node is
// sometimes wrong.
var patience = peer.Patience{Suspect: 7, Stall: 12}

// ping sends a heartbeat to every other node and suspects nodes from which
// nothing arrived for too long. Heartbeats use the same links as frames.
func (n *node) ping() {
	n.ticks++
	for other := range n.w.nodes {
		if other == n.id {
			continue
		}
		n.w.fly(n.id, other, nil)
		if !n.quiet[other] && n.signs[other].IsSuspected(n.ticks, 0, patience) {
			n.quiet[other] = true
			n.w.count.silences++
			n.w.note("silent %d %d", n.id, other)
			n.driver.Core().PeerSuspected(n.w.name(other))
		}
	}
}

// stand runs one pass of a process whose loop is stuck, for example because its
// disk does not respond. If n.beats is set, its links still send heartbeats.
func (n *node) stand() {
	if !n.beats || n.w.step%n.slow != 0 {
		return
	}
	for other := range n.w.nodes {
		if other != n.id {
			n.w.fly(n.id, other, nil)
		}
	}
}

// hear handles an arrival from another node. If that node has restarted, the
// raft core first learns that the previous process has failed, no matter how
// soon the new process appeared.
func (n *node) hear(a arrival) {
	from, signs := a.from, &n.signs[a.from]
	if start := n.w.nodes[from].process; n.met[from] != start {
		if n.met[from] != 0 && !n.quiet[from] {
			n.w.note("renewed %d %d", n.id, from)
			n.driver.Core().PeerSuspected(n.w.name(from))
		}
		n.met[from] = start
		signs.Renew()
	}
	signs.NoteArrival(n.ticks)
	signs.NoteTurns(a.turns, n.ticks)
	if n.quiet[from] && !signs.IsAlive(n.ticks, patience) {
		return
	}
	if n.quiet[from] {
		n.w.note("heard %d %d", n.id, from)
	}
	delete(n.quiet, from)
	n.driver.Core().PeerAlive(n.w.name(from))
}
