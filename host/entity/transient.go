package entity

import (
	"bytes"

	"github.com/hostd/hostd/abi"
)

// A transient entity is in its guest's memory and nowhere else: its commands
// leave no record, and what it was is lost when it leaves memory or its shard
// another leader. So that two nodes never both answer for it, an answer waits
// until this node has confirmed, by a read round asked after the command, that
// it still leads. While it is in memory a command id has its effect once.

// CodeTransient is the code of a dead letter that was sent to a type whose
// entities keep nothing, and of a refusal to deliver it again.
const CodeTransient = "transient"

// mode is which outputs a command of a type may have.
func (t *Type) mode() abi.Mode {
	switch {
	case t.Transient:
		return abi.HandleTransient
	case t.Durable:
		return abi.HandleState
	}
	return abi.HandleEvents
}

// loadTransient makes the initial state of an entity that has no history.
func (c *core) loadTransient(l *load) {
	c.loaded(&loadChunk{load: l, last: true})
}

// transient answers what a guest has done to an entity that keeps nothing.
func (c *core) transient(e *entity, r *Request, env Env, hash uint64) {
	reply := bytes.Clone(c.output.Reply)
	r.Result = Result{Payload: reply, Fuel: c.fuel}
	c.fuel = 0
	c.note(e, remembered{id: r.ID, hash: hash, reply: reply, recordedAt: env.Now, server: r.ServerID})
	if e.rest != nil {
		e.rest.faults = 0
	}
	e.shard.clock = max(e.shard.clock, env.Now)
	c.stats.Commands++
	leaves := c.output.Passivate && !e.typ.Singleton
	c.hold(e.shard, r, e.last, true)
	if leaves {
		c.leave(e)
	}
}

// ofTransient decides a request that would leave a record, on an entity that
// leaves none, and reports whether it was one.
func (c *core) ofTransient(e *entity, r *Request) bool {
	if !e.typ.Transient {
		return false
	}
	switch r.Kind {
	case Delete:
		c.settle(e.shard, r, Result{})
		c.leave(e)
	case SkipTimer, Redeliver:
		c.settle(e.shard, r, Result{Err: &RejectedError{Code: CodeTransient, Message: "the entities of this type keep nothing"}})
	default:
		return false
	}
	return true
}
