package sim

import "math/rand/v2"

// hints report to nodes that the process of another node has ended. Hints about
// a process that has ended are right. Wrong hints imitate a firewall that
// resets and refuses connections. Hints use a separate random source, so that a
// world without hints is unchanged.
type hints struct {
	often int // a wrong hint occurs once in ten times this many steps; 0 means no hints
	rng   *rand.Rand

	right, wrong int // number of hints given
}

// UseHints enables hints.
func (w *World) UseHints() {
	r := rand.New(rand.NewPCG(w.Seed, 7))
	w.hints = hints{often: []int{3, 20, 80}[r.IntN(3)], rng: r}
}

// Hints returns the numbers of right and wrong hints.
func (w *World) Hints() (right, wrong int) { return w.hints.right, w.hints.wrong }

// hint sometimes reports to a node that another node's process has ended. If
// that is wrong, the next arrival from the process corrects it.
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
