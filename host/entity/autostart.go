package entity

import (
	"fmt"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// keeps reports whether the type is always-on.
func (c *core) keeps(entityType string) bool {
	if !c.starter.Any() {
		return false
	}
	t := c.opts.Types.Lookup(entityType)
	return t != nil && t.Remember
}

// mustReturn reports whether an entity which has left memory must be loaded
// again.
func (c *core) mustReturn(e *entity) bool {
	return (e.exists || e.id.ID == manifest.SingletonID) && !e.stopped && e.shard.state == leading && c.keeps(e.id.Type) && e.stays()
}

// stays reports whether the entity exists or is a singleton, which is in memory
// even without a record.
func (e *entity) stays() bool {
	t := e.shard.opts.Types.Lookup(e.id.Type)
	return e.exists || t != nil && t.Singleton && t.CheckID(e.id) == nil
}

// startAgain queues an entity to be loaded again.
func (c *core) startAgain(e *entity) {
	e.exists = false // unknown until it is loaded
	c.starter.Again(e.shard.starts, e.id)
}

// started answers a request to load an entity. An entity that turns out not to
// exist leaves memory again.
func (c *core) started(e *entity, r *request.Request) {
	e.shard.settle(r, request.Result{})
	if !e.stays() && e.waiting.Len() == 0 {
		c.leave(e)
	}
}

// recordStop executes a caller's request to passivate an always-on entity. It
// writes a record, so that later leaders do not start the entity either.
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
