package entity

import (
	"fmt"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// keeps reports that a type keeps its entities in memory.
func (c *core) keeps(entityType string) bool {
	if !c.starter.Any() {
		return false
	}
	t := c.opts.Types.Lookup(entityType)
	return t != nil && t.Remember
}

// mustReturn reports that an entity which has left is to be in memory.
func (c *core) mustReturn(e *entity) bool {
	return (e.exists || e.id.ID == manifest.SingletonID) && !e.stopped && e.shard.state == leading && c.keeps(e.id.Type) && e.stays()
}

// stays reports that there is to be an entity whether it exists or not, or that
// it does.
func (e *entity) stays() bool {
	t := e.shard.opts.Types.Lookup(e.id.Type)
	return e.exists || t != nil && t.Singleton && t.CheckID(e.id) == nil
}

// startAgain has an entity started that is to be in memory and has left.
func (c *core) startAgain(e *entity) {
	e.exists = false // until it is loaded nothing is known of it
	c.starter.Again(e.shard.starts, e.id)
}

// started answers a request to be in memory. What turns out not to exist
// leaves again.
func (c *core) started(e *entity, r *request.Request) {
	e.shard.settle(r, request.Result{})
	if !e.stays() && e.waiting.Len() == 0 {
		c.leave(e)
	}
}

// recordStop carries out a caller's request to let a remembered entity leave,
// with a record.
func (d *decider) recordStop(e *entity, r *request.Request) bool {
	if !e.typ.Remember || e.typ.Singleton || !e.exists {
		return false
	}
	if d.readOnly() {
		e.shard.settle(r, request.Result{Err: request.ErrReadOnly})
		return true
	}
	now := e.shard.logNow()
	d.output.Reset()
	d.fuel = 0
	r.ID, r.ServerID = journal.CommandID(fmt.Sprintf("passivate-%016x", now)), true
	d.append(e, r, Env{Now: now}, 0)
	return true
}
