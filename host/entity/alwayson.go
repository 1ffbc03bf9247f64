package entity

import (
	"fmt"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// isAlwaysOn reports whether the type is always-on.
func (c *core) isAlwaysOn(entityType string) bool {
	if !c.alwaysOn.HasTypes() {
		return false
	}
	t := c.opts.Types.Lookup(entityType)
	return t != nil && t.AlwaysOn
}

// mustReturn reports whether an entity which has left memory must be loaded
// again.
func (c *core) mustReturn(e *entity) bool {
	return (e.exists || e.id.ID == manifest.SingletonID) && !e.stopped && e.shard.state == leading && c.isAlwaysOn(e.id.Type) && e.mustBeResident()
}

// mustBeResident reports whether the entity exists or is a singleton, which is in memory
// even without a record.
func (e *entity) mustBeResident() bool {
	t := e.shard.opts.Types.Lookup(e.id.Type)
	return e.exists || t != nil && t.Singleton && t.checkID(e.id) == nil
}

// startAgain queues an entity to be loaded again. An entity that is held back
// after a failed start waits for its retry, because otherwise a quarantined
// singleton would be started, and fail, as often as the rate allows.
func (c *core) startAgain(e *entity) {
	e.exists = false // unknown until it is loaded
	if e.shard.starts.IsHeldBack(e.id) {
		return
	}
	c.alwaysOn.StartAgain(e.shard.starts, e.id)
}

// finishStart answers a request to start an entity. If it turns out that the
// entity does not exist, it leaves memory again.
func (c *core) finishStart(e *entity, r *request.Request) {
	e.shard.settle(r, request.Result{})
	if !e.mustBeResident() && e.waiting.Len() == 0 {
		c.leave(e)
	}
}

// recordStop executes a caller's request to passivate an always-on entity. It
// writes a record, so that no later leader starts the entity either.
func (d *decider) recordStop(e *entity, r *request.Request) bool {
	if !e.typ.AlwaysOn || e.typ.Singleton || !e.exists {
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
