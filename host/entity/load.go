package entity

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/host/request"
)

// load is the load of an entity in progress.
type load struct {
	historyLoad
	entity *entity
	ctx    context.Context
	cancel context.CancelFunc
	before int64           // see window.Batch.Before
	skip   bool            // see window.Batch.Skipped
	chunks []*historyChunk // chunks received and not applied
	credit chan struct{}   // one token for each chunk that the executor has taken
}

// startLoad starts a load of the entity's history from its newest usable
// snapshot. The entity has nothing in flight, so the applied state is complete.
func (c *core) startLoad(e *entity) {
	t := c.typeOf(e.id)
	if t == nil {
		c.failWaiting(e, request.ErrNotServed)
		return
	}
	if err := t.checkID(e.id); err != nil {
		c.failWaiting(e, err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.phase, e.typ = loading, t
	x := e.withExtra()
	x.load = &load{
		historyLoad: historyLoad{ID: e.id, Shard: e.shard.id, Type: t, Below: x.below, Whole: x.whole, Limits: e.shard.opts.Window},
		entity:      e, ctx: ctx, cancel: cancel, credit: make(chan struct{}, 2),
	}
	c.stats.Loads++
	if t.Transient || c.opts.Histories.IsAbsent(e.shard.id, e.id) {
		c.onChunk(x.load, &historyChunk{Last: true}) // the entity has no history
		return
	}
	c.runner.Start(x.load)
}

// onChunk receives a chunk. It ignores chunks of a cancelled load.
func (c *core) onChunk(l *load, ch *historyChunk) {
	e := l.entity
	if e.load() != l {
		return
	}
	if ch.Err != nil {
		if !c.makeRowOnly(e, ch) {
			c.abandon(e, ch.Err)
		}
		return
	}
	l.chunks = append(l.chunks, ch)
	c.enqueue(e)
}

// applyChunk passes the first received chunk to the guest.
func (c *core) applyChunk(e *entity) {
	l := e.load()
	if c.takeCommands(e, l); len(l.chunks) == 0 {
		return // the rest is not read yet
	}
	if e.inst == nil {
		in := c.residents.place(l.Type, e.faults() > 1)
		e.attach(in)
		if in.IsBusy() {
			return // the entity gets a turn after the call
		}
	}
	v := c.call
	v.kind, v.in, v.entity, v.handle, v.load, v.chunk = callLoad, e.inst, e, uint64(e.handle), l, l.chunks[0]
	if l.Step(&v.step, v.chunk); v.step.HasSnapshot() {
		c.stats.SnapshotLoads++
	}
	l.chunks = l.chunks[1:]
	c.makeCall(v)
}

// takeCommands removes the first received chunks that have only commands for
// the window, and nothing for the guest.
func (c *core) takeCommands(e *entity, l *load) {
	for len(l.chunks) > 0 && l.chunks[0].Commands {
		c.noteChunk(e, l, l.chunks[0])
		l.chunks = l.chunks[1:]
		l.grantChunk()
	}
}

// noteChunk adds the commands of a chunk to the window of an entity that is
// being loaded.
func (c *core) noteChunk(e *entity, l *load, ch *historyChunk) {
	if s := ch.Partial; s != nil {
		x := e.withExtra()
		x.beyond = window.Beyond{Partial: true, Older: s.Window, Filter: window.OpenFilter(bytes.Clone(s.Filter), int(s.FilterIDs))}
	}
	e.noteAll(ch.Seen)
	c.weigh(e)
	l.before, l.skip = max(l.before, ch.Seen.Before), l.skip || ch.Seen.Skipped
}

// grantChunk allows the loader to send another chunk.
func (l *load) grantChunk() {
	select {
	case l.credit <- struct{}{}:
	default: // this loader reads ahead without credit
	}
}

// chunkApplied continues a load after the guest has taken a chunk.
func (c *core) chunkApplied(e *entity, v *guestCall) {
	l, ch := e.load(), v.chunk
	if l == nil || l != v.load {
		return
	}
	if isCutOff(v.err) {
		c.giveUp(e, v.err)
		return
	}
	if v.err != nil && l.From() > 0 && !l.Type.Durable {
		c.fallBack(e, v.err)
		return
	}
	if v.err != nil {
		c.loadFault(e, v.err)
		return
	}
	c.noteChunk(e, l, ch)
	if !ch.Last {
		l.grantChunk()
		return
	}
	l.cancel()
	e.windowBuilt(l.before, l.skip)
	c.weigh(e)
	e.phase, e.sequence, e.hash, e.replay = inMemory, ch.Sequence, ch.Hash, ch.Replay
	e.exists = ch.Exists
	e.extra.load, e.extra.whole, e.extra.below = nil, false, 0
	e.setOutbox(int(ch.Outbox), ch.AsOf)
	e.extra.chain = ch.Chain
	e.trimExtra()
	e.beginStateCheck(c.opts.States, l.From())
	e.costly = e.isCostly()
	e.waiting.RecordLoad(c.now)
	c.residents.addResident(e)
	if !e.awaitsActivation && !e.stalled {
		delete(c.unloaded, e)
	}
	c.enqueue(e)
}

// abandon ends a load that cannot succeed now.
func (c *core) abandon(e *entity, err error) {
	e.noteError(err)
	c.residents.evict(e)
	c.failWaiting(e, err)
}

// failOpen ends a load for which no guest instance could be created.
func (c *core) failOpen(e *entity, err error) {
	c.opts.Logger.Error("cannot create a guest instance", "entity_type", e.id.Type, "error", err)
	e.noteError(err)
	c.giveUp(e, fmt.Errorf("%w: no memory for a guest instance", request.ErrBusy))
}

// giveUp closes an entity's instance and answers the entity's waiting requests
// with err.
func (c *core) giveUp(e *entity, err error) {
	waiting, typ := e.waiting, e.typ // an evicted entity has no type
	e.waiting = request.Queue{}
	c.residents.closeInstance(e.inst)
	for r := waiting.Pop(); r != nil; r = waiting.Pop() {
		e.shard.settle(r, request.Result{Err: typ.faultOf(r, err)})
	}
}

// loadFault ends a load on which the guest failed. Events that a guest cannot
// apply are never skipped, so the entity is not loaded.
func (c *core) loadFault(e *entity, err error) {
	c.recordFault(e, nil, err)
	c.giveUp(e, &request.GuestFaultError{Message: err.Error()})
}

// fallBack loads an entity again without the snapshot on which the guest
// failed, from an older snapshot or from the first event.
func (c *core) fallBack(e *entity, err error) {
	e.extra.below = e.extra.load.From()
	c.opts.Logger.Warn("cannot load a snapshot", "entity_type", e.id.Type, "shard_id", e.shard.id, "error", err)
	if errors.Is(err, errInitialRefused) {
		e.extra.load.MarkRefused() // the guest has no state to drop
		c.residents.evict(e)
	} else {
		c.stats.Faults++
		c.residents.closeInstance(e.inst)
	}
	c.revive(e)
}
