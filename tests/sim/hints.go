package sim

import "math/rand/v2"

// hints are words that a node's process has ended. Those about one that has are
// right; the others are what a firewall says that resets and refuses. They come
// from a source of their own: a world without them goes as before.
type hints struct {
	often int // one in so many steps; 0: none
	rng   *rand.Rand

	right, wrong int // that were given
}

// UseHints gives hints from now on.
func (w *World) UseHints() {
	r := rand.New(rand.NewPCG(w.Seed, 7))
	w.hints = hints{often: []int{3, 20, 80}[r.IntN(3)], rng: r}
}

// Hints are how many right and wrong ones were given.
func (w *World) Hints() (right, wrong int) { return w.hints.right, w.hints.wrong }

// hint tells a node now and then that another one's process has ended. What
// arrives from that one shows that it has not.
func (w *World) hint() {
	h := &w.hints
	if h.often == 0 || len(w.nodes) == 1 {
		return
	}
	for _, n := range w.nodes {
		if !n.up || n.paused > w.step {
			continue
		}
		for _, of := range w.nodes {
			switch {
			case of == n || w.cut[[2]int{of.id, n.id}] || w.cut[[2]int{n.id, of.id}]:
			case !of.up && h.rng.IntN(3) == 0:
				h.right++
				n.driver.Core().PeerFailed(w.name(of.id))
			case of.up && h.rng.IntN(h.often*10) == 0:
				h.wrong++
				w.note("hint %d %d", n.id, of.id)
				n.driver.Core().PeerFailed(w.name(of.id))
			}
		}
	}
}
