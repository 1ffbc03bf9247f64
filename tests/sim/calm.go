package sim

import (
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Time bounds of a cluster without faults, in steps. A tick has 4 steps and a
// link at most 3.
const (
	// dozes is the time within which all groups without work fall asleep.
	dozes = 60 * 4
	// answers is the time within which a command to a sleeping group is answered.
	answers = 12 * 4
	// failsOver is the time within which every shard accepts a command on another
	// node after a node died while all groups were asleep. The node is suspected
	// after 7 ticks, and the elections follow.
	failsOver = 25 * 4
	// standsOver is like failsOver, for a node whose loop is stuck while its links
	// work. Other nodes notice that later.
	standsOver = failsOver + 8*4
	// returns is the time within which a restarted node is back and all replicas
	// have caught up. The node may have to apply its logs again, for which it gets
	// one additional step per entry.
	returns = 40 * 4
)

// calm checks, once all faults are healed, that groups without work fall
// asleep, and that commands and the failure and return of a node wake the
// groups that they must wake.
func (w *World) calm() {
	w.note("calm")
	if w.meta != nil {
		w.meta.still = true // from now on, the coordinator replaces no node
	}
	w.doze("after the faults", quiet) // learners may have to fetch many entries
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
	// Now a process restarts before the other nodes suspect it.
	if n = w.spare(); n == nil || w.first != nil {
		return
	}
	n.crash(false)
	n.restart()
	w.ask("after a short absence", failsOver)
	w.within("caught up", w.returns(), w.settled)
	w.doze("in the end", dozes)
}

// oversleep pauses and isolates a process while its groups are asleep, until
// other nodes lead the shards that it led. Then the process continues, with its
// clock at the time at which it stopped, and receives reads. The process must
// find out that it no longer leads before it answers the reads.
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
		n.executors[w.shardOf(name)].handle(k)
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

// standStill stops only a node's loop while its groups are asleep. Other nodes
// must take over its shards although heartbeats still arrive from it.
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

// isolate cuts all links of a node.
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

// within runs steps until a condition holds.
func (w *World) within(what string, bound int, ok func() bool) {
	for end := w.step + bound; w.first == nil && !ok(); w.step++ {
		if w.step == end {
			w.fail("liveness: %s: not within %d steps: %s", what, bound, w.describe())
			return
		}
		w.pass()
	}
}

// doze waits until every group is asleep on all nodes that are up.
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

// ask sends a command to each entity and waits for the answers.
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

// spare returns a node without which every shard has a quorum, or nil.
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
