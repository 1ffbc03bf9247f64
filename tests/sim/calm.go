package sim

import (
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Bounds of a cluster without faults, in steps; a tick is 4 steps and a link
// takes up to 3.
const (
	// dozes: groups without work are all asleep.
	dozes = 60 * 4
	// answers: a command at a group that sleeps is answered.
	answers = 12 * 4
	// failsOver: after a node's death, while all slept, every shard takes a
	// command elsewhere: 7 ticks until the node counts as silent, and the
	// elections.
	failsOver = 25 * 4
	// standsOver is the same of a node whose loop stands still while its links
	// live, which is noticed later.
	standsOver = failsOver + 8*4
	// returns: the node is back and everybody has caught up; it may have to
	// apply its logs again, for which it gets a step an entry.
	returns = 40 * 4
)

// calm checks, once all is well, that groups without work fall asleep and that
// work, a node's death and its return wake those they must.
func (w *World) calm() {
	w.note("calm")
	if w.meta != nil {
		w.meta.still = true // nobody is to be replaced now
	}
	w.doze("after the faults", quiet) // learners may have much to fetch
	w.ask("asleep", answers)
	w.doze("after commands", dozes)
	n := w.spare()
	if n == nil || w.first != nil {
		return
	}
	n.crash(w.rng.IntN(2) == 0)
	w.ask("after a death", failsOver)
	w.doze("without a node", dozes)
	w.ask("without a node", answers)
	n.restart()
	w.within("node back", w.returns(), w.settled)
	w.doze("with the node back", dozes)
	w.oversleep()
	w.standStill()
	// A process that is back before its silence is noticed.
	if n = w.spare(); n == nil || w.first != nil {
		return
	}
	n.crash(false)
	n.restart()
	w.ask("after a short absence", failsOver)
	w.within("caught up", w.returns(), w.settled)
	w.doze("in the end", dozes)
}

// oversleep stops a process and cuts it off while its groups sleep. What it
// led gets other leaders; then it goes on, with its clock where it was, and is
// read from: it must find out that it leads no more before it answers.
func (w *World) oversleep() {
	n := w.spare()
	if n == nil || w.first != nil {
		return
	}
	var led []string
	for _, name := range sorted(w.entity) {
		if w.leader(w.shardOf(name)) == n {
			led = append(led, name)
		}
	}
	w.note("oversleep %d %v", n.id, led)
	n.paused = 1 << 30
	w.isolate(n.id)
	w.ask("beside a stopped process", failsOver)
	n.paused = 0
	var calls []*call
	for _, name := range led {
		floor := w.entity[name].known
		k := &call{entity: name, read: true, answer: func(o outcome, h head) {
			if o == done && h.sequence < floor {
				w.fail("I6: node %d overslept and says that %s is at %d when %d is known", n.id, name, h.sequence, floor)
			}
		}}
		n.lanes[w.shardOf(name)].handle(k)
		calls = append(calls, k)
	}
	w.within("reads of who overslept", failsOver, func() bool {
		for _, k := range calls {
			if k.answer != nil {
				return false
			}
		}
		return true
	})
	clear(w.cut)
	w.within("caught up", w.returns(), w.settled)
	w.doze("after oversleeping", dozes)
}

// standStill stops a node's loop and nothing else while its groups sleep. What
// it led is led elsewhere, although bytes of it arrive all the time.
func (w *World) standStill() {
	n := w.spare()
	if n == nil || w.first != nil {
		return
	}
	w.count.stands++
	w.note("stands %d", n.id)
	n.paused, n.beats = 1<<30, true
	w.ask("beside a loop that stands still", standsOver)
	n.paused, n.beats = 0, false
	w.within("caught up", w.returns(), w.settled)
	w.doze("after standing still", dozes)
}

// isolate cuts a node off.
func (w *World) isolate(id int) {
	for other := range w.nodes {
		if other != id {
			w.cut[[2]int{id, other}], w.cut[[2]int{other, id}] = true, true
		}
	}
}

func (w *World) returns() int {
	bound := returns
	for _, s := range w.shards {
		bound += len(w.log[s])
	}
	return bound
}

// within passes steps until a condition holds.
func (w *World) within(what string, bound int, ok func() bool) {
	for end := w.step + bound; w.first == nil && !ok(); w.step++ {
		if w.step == end {
			w.fail("liveness: %s: not within %d steps: %s", what, bound, w.describe())
			return
		}
		w.pass()
	}
}

// doze waits until every group sleeps on all nodes that are up.
func (w *World) doze(when string, bound int) {
	w.within("asleep "+when, bound, func() bool {
		for _, s := range w.shards {
			for i, n := range w.nodes {
				if !n.up || w.outside(s, i) {
					continue
				}
				status, err := n.driver.Core().Status(s)
				if lone := len(status.Voters)+len(status.Learners) == 1; err != nil || !status.Quiescent && !lone {
					return false
				}
			}
		}
		return true
	})
	w.note("asleep %s", when)
}

// ask has a command of each entity answered.
func (w *World) ask(when string, bound int) {
	w.asked++
	var clients []*client
	for i, name := range sorted(w.entity) {
		c := &client{w: w, id: 1000*w.asked + i, number: 1, patience: 40, wise: true}
		c.op = &operation{entity: name, id: journal.CommandID(fmt.Sprintf("ask%d-%d", w.asked, i)), must: true, floor: w.entity[name].known}
		clients = append(clients, c)
	}
	before := w.clients
	w.clients = clients
	w.within("commands "+when, bound, func() bool {
		for _, c := range clients {
			if c.op != nil {
				return false
			}
		}
		return true
	})
	w.clients = before
}

// spare returns a node without which every shard has its quorum, nil if there
// is none.
func (w *World) spare() *node {
	for _, i := range w.rng.Perm(len(w.nodes)) {
		n := w.nodes[i]
		free := true
		for _, s := range w.shards {
			free = free && w.spares(s, n)
		}
		if free {
			return n
		}
	}
	return nil
}

func (w *World) spares(s sharding.ShardID, n *node) bool {
	leader := w.leader(s)
	if leader == nil {
		return false
	}
	status, err := leader.driver.Core().Status(s)
	rest := 0
	for _, id := range status.Voters {
		if id != w.replica(s, n.id) {
			rest++
		}
	}
	return err == nil && len(status.Outgoing) == 0 && rest > len(status.Voters)/2
}
