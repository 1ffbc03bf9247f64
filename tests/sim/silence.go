package sim

import "github.com/hostd/hostd/host/peer"

// patience is how long a node counts another one as heard, in its own ticks:
// without a byte of it, and while its loop stands still. Clocks and links
// differ so much that it is wrong about that now and then.
var patience = peer.Patience{Silent: 7, Stands: 12}

// ping lets the others know that the node lives, and looks who is silent. It
// goes over the same links as the frames.
func (n *node) ping() {
	n.ticks++
	for other := range n.w.nodes {
		if other == n.id {
			continue
		}
		n.w.fly(n.id, other, nil)
		if !n.quiet[other] && n.signs[other].Silent(n.ticks, 0, patience) {
			n.quiet[other] = true
			n.w.count.silences++
			n.w.note("silent %d %d", n.id, other)
			n.driver.Core().PeerSuspected(n.w.name(other))
		}
	}
}

// stand is a pass of a process whose loop does not go round, as on a disk that
// does not answer: where its links live, they ping all the same.
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

// hear follows anything that came from another node. What counted on an older
// process of it hears that this one is gone, however soon the new one came.
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
	signs.Arrived(n.ticks)
	signs.Turned(a.turns, n.ticks)
	if n.quiet[from] && !signs.Heard(n.ticks, patience) {
		return
	}
	if n.quiet[from] {
		n.w.note("heard %d %d", n.id, from)
	}
	delete(n.quiet, from)
	n.driver.Core().PeerAlive(n.w.name(from))
}
