package sim

import (
	"fmt"

	"github.com/hostd/hostd/journal"
)

// outcome is what a call came to.
type outcome int

const (
	// done: the command is committed, or the read is answered.
	done outcome = iota
	// refused: this call had no effect and never will.
	refused
	// unknown: it may have had an effect, or may still.
	unknown
)

// call is one attempt of an operation at one node.
type call struct {
	entity  string
	id      journal.CommandID
	payload []byte
	read    bool
	serves  uint64 // the revision under which it ran
	sends   []journal.MessageOp
	timers  timerOps
	timer   *journal.Timer // that made it
	// Of a message that is carried out, or rejected.
	send     *delivery
	rejected bool
	// key is the call's among what its lane has in flight; the id of a client's.
	key    journal.CommandID
	answer func(outcome, head)
}

// finish answers once; later answers are of nobody's interest.
func (c *call) finish(o outcome, h head) {
	if c.answer != nil {
		answer := c.answer
		c.answer = nil
		answer(o, h)
	}
}

// operation is what a client wants, over as many calls as it takes.
type operation struct {
	entity  string
	id      journal.CommandID
	payload []byte
	sends   []journal.MessageOp
	timers  timerOps
	read    bool
	again   bool // a command that was acknowledged before
	must    bool // never given up
	// floor is the highest sequence that anyone knew when the operation was
	// first called: a linearizable answer is above it, or for a read at it.
	floor journal.Sequence
	// maybe: an attempt has an unknown outcome.
	maybe bool
}

// client does one operation at a time and gives a node some time to answer.
type client struct {
	w      *World
	id     int
	number int
	node   int // where to call next

	op    *operation
	call  *call
	since int // of the call
	// patience is how long it waits for an answer, in steps, and wander that it
	// calls another node than the last one in a hundred operations.
	patience, wander int
	pause            int // no call before this step
	// wise: it calls the node that leads, as far as anybody can know.
	wise bool
}

// history is what the clients know of an entity.
type history struct {
	known  journal.Sequence
	acked  map[journal.CommandID]journal.Sequence
	order  []journal.CommandID // of acked
	failed map[journal.CommandID]bool
	maybe  map[journal.CommandID]bool
	reads  []head
}

func newHistory() *history {
	return &history{acked: map[journal.CommandID]journal.Sequence{}, failed: map[journal.CommandID]bool{}, maybe: map[journal.CommandID]bool{}}
}

func (c *client) act() {
	w := c.w
	switch {
	case c.call != nil:
		if w.step-c.since > c.patience {
			c.call.answer = nil
			c.settle(unknown, head{})
		}
	case w.step < c.pause:
	case c.op != nil:
		c.try()
	case !w.healing && !w.resting() && w.rng.IntN(3) == 0:
		c.op = c.choose()
		if w.rng.IntN(100) < c.wander {
			c.node = w.rng.IntN(len(w.nodes))
		}
		c.try()
	}
}

// resting says whether this is a time in which clients leave all alone.
func (w *World) resting() bool {
	return w.profile.calm > 0 && w.step/w.profile.calm%2 == 1
}

func (c *client) choose() *operation {
	r := c.w.rng
	names := sorted(c.w.entity)
	name := names[r.IntN(1+r.IntN(len(names)))] // the first are hot
	h := c.w.entity[name]
	op := &operation{entity: name, floor: h.known}
	switch k := r.IntN(10); {
	case k < 3:
		op.read = true
	case k < 5 && len(h.order) > 0:
		op.id, op.again = h.order[r.IntN(len(h.order))], true
		c.w.count.resent++
	default:
		c.number++
		op.id = journal.CommandID(fmt.Sprintf("c%d-%d", c.id, c.number))
		op.payload = make([]byte, r.IntN(200))
		op.sends, op.timers = c.w.messages.sends(), c.w.messages.timers()
	}
	return op
}

// try calls a node; some answers never arrive.
func (c *client) try() {
	w := c.w
	op := c.op
	if op.read {
		op.floor = w.entity[op.entity].known
	}
	k := &call{entity: op.entity, id: op.id, payload: op.payload, sends: op.sends, timers: op.timers, read: op.read, key: op.id}
	c.call, c.since = k, w.step
	lost := !w.healing && w.rng.IntN(30) == 0
	k.answer = func(o outcome, h head) {
		if !lost {
			c.settle(o, h)
		}
	}
	n := w.nodes[c.node%len(w.nodes)]
	if leader := w.leader(w.shardOf(op.entity)); c.wise && leader != nil {
		n = leader
	}
	if !n.up || n.paused > w.step {
		k.finish(refused, head{})
		return
	}
	n.lanes[w.shardOf(op.entity)].handle(k)
}

// settle takes an answer.
func (c *client) settle(o outcome, h head) {
	w, op := c.w, c.op
	c.call = nil
	w.note("answer %d %s %s %d %d", c.id, op.entity, op.id, o, h.sequence)
	if o == done {
		c.op = nil
		w.answered(op, h)
		return
	}
	if o == unknown {
		op.maybe = true
		w.count.unknown++
	}
	c.node = w.rng.IntN(len(w.nodes))
	c.pause = w.step + 1 + w.rng.IntN(10)
	if op.must || w.rng.IntN(5) > 0 {
		return
	}
	c.op = nil
	if history := w.entity[op.entity]; !op.read && !op.again {
		if op.maybe {
			history.maybe[op.id] = true
		} else {
			history.failed[op.id] = true
		}
	}
}

// answered checks an answer against what was known when it was asked for.
func (w *World) answered(op *operation, h head) {
	e := w.entity[op.entity]
	switch {
	case op.read:
		w.count.reads++
		if h.sequence < op.floor {
			w.fail("I6: a read of %s gave %d when %d was known", op.entity, h.sequence, op.floor)
		}
		e.reads = append(e.reads, h)
	case op.again:
		if h.sequence != e.acked[op.id] {
			w.fail("I3: %s %s was acknowledged at %d and again at %d", op.entity, op.id, e.acked[op.id], h.sequence)
		}
	default:
		w.count.acked++
		if h.sequence <= op.floor {
			w.fail("I6: %s %s was acknowledged at %d when %d was known", op.entity, op.id, h.sequence, op.floor)
		}
		e.acked[op.id] = h.sequence
		e.order = append(e.order, op.id)
	}
	e.known = max(e.known, h.sequence)
}
