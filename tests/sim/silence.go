package sim

// silent is the number of its own ticks in which a node hears nothing of
// another before it counts it as silent. Clocks and links differ so much that
// it is wrong about that now and then.
const silent = 7

// ping lets the others know that the node lives, and counts how long it did
// not hear of them. It goes over the same links as the frames.
func (n *node) ping() {
	for other := range n.w.nodes {
		if other == n.id {
			continue
		}
		n.w.fly(n.id, other, nil)
		if n.silence[other]++; n.silence[other] == silent {
			n.quiet[other] = true
			n.w.count.silences++
			n.w.note("silent %d %d", n.id, other)
			n.driver.Core().PeerSilent(n.w.name(other))
		}
	}
}

// hear follows anything that came from another node. What counted on an older
// process of it hears that this one is gone, however soon the new one came.
func (n *node) hear(from int) {
	if life := n.w.nodes[from].life; n.met[from] != life {
		if n.met[from] != 0 && !n.quiet[from] {
			n.w.note("renewed %d %d", n.id, from)
			n.driver.Core().PeerSilent(n.w.name(from))
		}
		n.met[from] = life
	}
	n.silence[from] = 0
	if n.quiet[from] {
		n.w.note("heard %d %d", n.id, from)
	}
	delete(n.quiet, from)
	n.driver.Core().PeerHeard(n.w.name(from))
}
