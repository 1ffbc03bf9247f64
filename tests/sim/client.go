package sim

import (
	"fmt"

	"github.com/hostd/hostd/journal"
)

// outcome is the result of a call.
type outcome int

const (
	// done: the command is committed, or the read is answered.
	done outcome = iota
	// refused: this call had no effect and will never have an effect.
	refused
	// unknown: this call may have had an effect, or may still have an effect.
	unknown
)

// call is one attempt of an operation at one node.
type call struct {
	entity  string
	id      journal.CommandID
	payload []byte
	read    bool
	serves  uint64 // revision of activations under which it ran
	sends   []journal.MessageOp
	timers  timerOps
	timer   *journal.Timer // timer that caused the call
	// send is set for a message that is delivered or rejected.
	send     *delivery
	rejected bool
	// key identifies the call among the calls in flight on its executor. For a
	// client's call it is the command ID.
	key    journal.CommandID
	answer func(outcome, head)
}

// finish answers the call. Later answers are ignored.
func (c *call) finish(o outcome, h head) {
	if c.answer != nil {
		answer := c.answer
		c.answer = nil
		answer(o, h)
	}
}

// operation is a command or a read of a client, which may need several calls.
type operation struct {
	entity  string
	id      journal.CommandID
	payload []byte
	sends   []journal.MessageOp
	timers  timerOps
	read    bool
	again   bool // the operation resends a command that was acknowledged before
	must    bool // retry until it succeeds
	// floor is the highest sequence that any client knew when the operation was
	// first called. A linearizable command must get a higher sequence; a read
	// must return at least this sequence.
	floor journal.Sequence
	// maybe is set if an attempt has an unknown outcome.
	maybe bool
}

// client executes one operation at a time and waits a limited time for each
// answer.
type client struct {
	w      *World
	id     int
	number int
	node   int // node to call next

	op    *operation
	call  *call
	since int // step of the call
	// patience is how many steps the client waits for an answer. wander is the
	// percentage of operations for which it moves to a random node.
	patience, wander int
	pause            int // no call before this step
	// wise means that the client calls the current leader if there is one.
	wise bool
}

// history is the clients' knowledge about an entity.
type history struct {
	known  journal.Sequence
	acked  map[journal.CommandID]journal.Sequence
	order  []journal.CommandID // keys of acked in order
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

// resting reports whether clients currently start no operations.
func (w *World) resting() bool {
	return w.profile.calm > 0 && w.step/w.profile.calm%2 == 1
}

func (c *client) choose() *operation {
	r := c.w.rng
	names := sorted(c.w.entity)
	name := names[r.IntN(1+r.IntN(len(names)))] // the first entities are called most
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

// try calls a node. Some answers are lost.
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
	n.executors[w.shardOf(op.entity)].handle(k)
}

// settle handles an answer.
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

// answered compares an answer with the history that was known when the
// operation was first called.
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
