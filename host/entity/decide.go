package entity

import (
	"bytes"
	"errors"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// command decides one command on a resident entity: remembered, refused, or
// carried out and put into the shard's open batch.
func (c *core) command(e *entity, r *Request) {
	s := e.shard
	now := c.logNow(s)
	if r.fire != nil {
		c.fire(e, r, now)
		return
	}
	var hash uint64
	hash, c.scratch = journal.HashCommand(c.scratch, r.Name, r.Payload)
	if c.remembered(e, r, hash, now) || c.unsure(e, r) || c.forgotten(e, r, now) {
		return
	}
	if r.ExpectedSequence != NoExpectation && journal.Sequence(r.ExpectedSequence) != e.sequence {
		r.Result = Result{Err: &SequenceMismatchError{Expected: journal.Sequence(r.ExpectedSequence), Actual: e.sequence}}
		c.hold(s, r, e.last, true)
		return
	}
	if e.typ.Commands != nil && !e.typ.Commands[r.Name] {
		c.settle(s, r, Result{Err: ErrUnknownCommand})
		return
	}
	if c.readOnly() && !e.typ.Transient {
		c.settle(s, r, Result{Err: ErrReadOnly})
		return
	}
	if wait := e.typ.Rate.take(c.now.UnixNano()); wait > 0 {
		c.stats.RateLimited++
		c.settle(s, r, Result{Err: &RateLimitedError{RetryAfter: wait}})
		return
	}
	c.handle(e, r, now, hash)
}

// fire decides a timer's command. No client knows its id, so it is not looked
// for, and not remembered.
func (c *core) fire(e *entity, r *Request, now int64) {
	c.warm(r.fire)
	switch {
	case r.fire.stale():
		c.settle(e.shard, r, Result{Err: errStaleTimer})
	case c.readOnly():
		c.settle(e.shard, r, Result{Err: ErrReadOnly})
	case r.fire.timer.Schedule != nil && !c.fireSchedule(e, r, now):
	case e.typ.Commands != nil && !e.typ.Commands[r.Name]:
		c.opts.Logger.Warn("a timer's command is unknown to its entity", "entity_type", e.id.Type, "shard_id", e.shard.id, "command", r.Name)
		c.fuel = 0
		c.endTimer(e, r, Env{Now: now}, false)
	default:
		c.handle(e, r, now, 0)
	}
}

// handle gives a command to the guest.
func (c *core) handle(e *entity, r *Request, now int64, hash uint64) {
	v := c.call
	v.kind, v.in, v.entity, v.handle, v.req, v.hash = callHandle, e.inst, e, uint64(e.handle), r, hash
	v.env = Env{Now: now, Seed: seed(e.id, e.sequence, r.ID), Deadline: r.Deadline, Fuel: e.typ.CommandFuel}
	v.frames = commandFrames(v.frames[:0], e, r, v.env)
	c.visit(v)
}

// remembered answers a command id that the entity has carried out before.
func (c *core) remembered(e *entity, r *Request, hash uint64, now int64) bool {
	m, found, live := e.seen.find(&c.opts.Window, r.ID, now)
	switch {
	case live:
		c.again(e, r, &m, hash)
	case found && r.Again: // it is too old to count as known
		c.stats.Forgotten++
		c.settle(e.shard, r, Result{Err: ErrForgotten})
	default:
		return false
	}
	return true
}

// unsure has the whole window of an entity read for a command id that may be
// in a part of it that is not in memory. The request is first to be served then.
func (c *core) unsure(e *entity, r *Request) bool {
	if e.rest == nil || !e.rest.partial || !e.rest.filter.has(r.ID) {
		return false
	}
	c.readWhole(e, r)
	return true
}

// readWhole loads an entity again with its whole window, and then serves the
// request.
func (c *core) readWhole(e *entity, r *Request) {
	e.waiting.unshift(r)
	e.rest.whole = true
	c.away[e] = struct{}{}
	c.evict(e)
	c.revive(e)
}

// again answers a command id that the entity has carried out before. The
// stored reply may be in flight still; it is released with its record, or with
// a later one of the entity.
func (c *core) again(e *entity, r *Request, m *remembered, hash uint64) {
	if m.hash != hash {
		r.Result = Result{Err: ErrCommandIDReused}
		c.hold(e.shard, r, e.last, true)
		return
	}
	c.stats.Duplicates++
	r.Result = Result{Payload: m.reply, Sequence: m.sequence, EventCount: int(m.events), Duplicate: true}
	c.hold(e.shard, r, e.last, e.typ.Transient)
}

// outcome turns the guest's output into a refusal or a record.
func (c *core) outcome(e *entity, r *Request, env Env, hash uint64) {
	s, out := e.shard, &c.output
	if out.Rejected && r.Kind == Deliver {
		c.stats.Rejections++
		c.refused(e, r, env, &RejectedError{Code: string(out.Reject.Code), Message: string(out.Reject.Message)})
		return
	}
	if out.Rejected && r.fire != nil {
		c.stats.Rejections++
		c.endTimer(e, r, env, len(out.Events) > 0 || out.HasState)
		return
	}
	if out.Rejected {
		c.stats.Rejections++
		r.Result = Result{Err: &RejectedError{Code: string(out.Reject.Code), Message: string(out.Reject.Message)}}
		gate := e.last
		if len(out.Events) > 0 || out.HasState {
			c.evict(e) // it evolved by what does not exist
			c.revive(e)
		}
		c.hold(s, r, gate, true)
		return
	}
	if e.typ.Transient {
		c.transient(e, r, env, hash)
		return
	}
	if !c.fits(e, r) {
		return
	}
	if r.Kind == Deliver {
		c.answer(r.Delivery)
	}
	if err := c.room(e, r); err != nil {
		c.withdraw(e, r, err)
		return
	}
	c.append(e, r, env, hash)
	if out.Passivate && !e.typ.Singleton || out.Delete {
		c.leave(e)
	}
}

// append adds the command's record to the shard's open batch and moves the
// entity's head on.
func (c *core) append(e *entity, r *Request, env Env, hash uint64) {
	s, rec := e.shard, &c.record
	*rec = journal.Record{
		Entity: e.id, Term: s.term, RecordedAt: env.Now, Expected: e.sequence, Prev: e.hash,
		Module: e.typ.Digest, CommandID: r.ID, CommandHash: hash, Reply: c.output.Reply, Events: rec.Events[:0], Sections: rec.Sections[:0],
	}
	fuel := c.fuel
	c.fuelSection(rec)
	c.timerSections(e, r, rec)
	c.sendSections(e, r, rec)
	if r.ServerID {
		rec.Flags |= journal.FlagServerID
	}
	if c.output.Delete {
		rec.Flags |= journal.FlagTombstone
	}
	for i := range c.output.Events {
		ev := &c.output.Events[i]
		var tags []string
		for _, t := range ev.Tags {
			tags = append(tags, string(t))
		}
		rec.Events = append(rec.Events, journal.Event{Type: c.name(ev.Type), Payload: ev.Payload, Tags: tags})
	}
	if c.output.HasState {
		rec.Events = append(rec.Events, journal.Event{Type: stateEvent, Payload: c.output.State})
	}
	if c.output.Delete && (e.lives || len(rec.Events) > 0) {
		rec.Events = append(rec.Events, journal.Event{Type: tombstoneEvent})
	}
	e.lives = !c.output.Delete
	c.rests(e, r, rec)
	sortSections(rec)
	e.hash = c.chain.After(rec)
	e.sequence = rec.Last()
	e.last = s.next
	if e.rest != nil {
		e.rest.faults = 0
	}
	s.clock = env.Now
	c.encoded = journal.AppendRecord(c.encoded[:0], rec)
	if s.open.data == nil { // most entries hold one record, and stay in memory for a while
		s.open.data = journal.AppendEntryHeader(make([]byte, 0, journal.EntryHeaderBytes+len(c.encoded)), journal.EntryRecords, s.term, s.next)
	}
	s.open.data = append(s.open.data, c.encoded...)
	reply := bytes.Clone(rec.Reply)
	r.Result = Result{Payload: reply, Sequence: e.sequence, EventCount: len(rec.Events), Fuel: fuel}
	s.open.pending = append(s.open.pending, pending{entity: e, req: r})
	if !r.internal() {
		c.note(e, remembered{
			id: r.ID, hash: hash, reply: reply, recordedAt: env.Now, sequence: e.sequence,
			events: uint16(len(rec.Events)), server: r.ServerID,
		})
	}
	e.replay.add(len(rec.Events), len(c.encoded))
	c.stats.Commands++
	c.stats.Events += uint64(len(rec.Events))
	c.touch(s)
	if len(s.open.data) >= c.opts.BatchBytes {
		c.propose(s)
	}
}

// query reads a resident entity.
func (c *core) query(e *entity, r *Request) {
	s := e.shard
	if e.typ.Queries != nil && !e.typ.Queries[r.Name] {
		c.settle(s, r, Result{Err: ErrUnknownQuery})
		return
	}
	v := c.call
	v.kind, v.in, v.entity, v.handle, v.req = callQuery, e.inst, e, uint64(e.handle), r
	v.env = Env{Now: c.logNow(s), Seed: seed(e.id, e.sequence, ""), Deadline: r.Deadline, Fuel: e.typ.QueryFuel}
	f := abi.AppendSequence(v.frames[:0], uint64(e.sequence))
	f = abi.AppendName(f, r.Name)
	f = abi.AppendPayload(f, r.Payload)
	v.frames = abi.AppendNow(f, v.env.Now)
	c.visit(v)
}

// queried takes what a guest answered to a query. The result waits for what
// it saw.
func (c *core) queried(e *entity, v *call) {
	s, r, err := e.shard, v.req, v.err
	if err == nil {
		if err = abi.ParseOutput(&c.output, v.out, abi.QueryOnly, c.limits(e.typ)); err != nil {
			c.stats.BadOutputs++
		}
	}
	if err != nil {
		c.failed(e, r, err)
		return
	}
	c.stats.Queries++
	r.Result = Result{Payload: bytes.Clone(c.output.Reply), Sequence: e.sequence, Fuel: v.fuel}
	if c.output.Rejected {
		r.Result = Result{Err: &RejectedError{Code: string(c.output.Reject.Code), Message: string(c.output.Reject.Message)}}
	}
	c.hold(s, r, e.last, r.Kind == Query)
}

// limits are what a guest's answers on a type are held to.
func (c *core) limits(t *Type) *abi.Limits {
	if t.Limits != nil {
		return t.Limits
	}
	return &c.opts.Limits
}

// failed answers a request whose guest call failed.
func (c *core) failed(e *entity, r *Request, err error) {
	if !cutOff(err) {
		c.fault(e, r, err)
		return
	}
	c.settle(e.shard, r, Result{Err: err})
	c.closeInstance(e.inst)
}

// cutOff reports that a call was ended for a reason that is not the guest's.
func cutOff(err error) bool { return errors.Is(err, ErrDeadline) || errors.Is(err, ErrStopped) }

// fault answers a request whose guest call failed. The instance cannot be
// trusted with anything any more; the entities in it load again when they are
// next asked for. An entity that faults again gets an instance of its own, and
// one that goes on is parked for a while that doubles.
func (c *core) fault(e *entity, r *Request, err error) {
	c.stats.Faults++
	c.blame(e, err)
	c.settle(e.shard, r, Result{Err: &GuestFaultError{Message: err.Error()}})
	c.closeInstance(e.inst)
}

func (c *core) blame(e *entity, err error) {
	e.failed(err)
	e.rest.faults++
	if over := e.faults() - c.opts.ParkAfterFaults; over >= 0 {
		e.rest.parkedTo = c.now.Add(c.opts.ParkFor << min(over, 10))
		e.shard.parked.add(c, e)
		c.stats.Parked++
	}
	c.opts.Logger.Warn("a guest faulted", "entity_type", e.id.Type, "shard_id", e.shard.id, "faults", e.faults(), "error", err)
}

func commandFrames(f []byte, e *entity, r *Request, env Env) []byte {
	f = abi.AppendSequence(f, uint64(e.sequence))
	f = abi.AppendName(f, r.Name)
	f = abi.AppendPayload(f, r.Payload)
	f = abi.AppendCommandID(f, string(r.ID))
	f = abi.AppendNow(f, env.Now)
	f = abi.AppendSeed(f, env.Seed)
	if r.fire != nil {
		f = abi.AppendDue(f, r.fire.timer.Due)
	}
	return abi.AppendSource(f, r.source())
}

// name interns an event type.
func (c *core) name(b []byte) string {
	if s, ok := c.names[string(b)]; ok {
		return s
	}
	if len(c.names) >= 4096 {
		clear(c.names)
	}
	s := string(b)
	c.names[s] = s
	return s
}

// seed is the number a call's random stream starts from: FNV-1a over entity,
// sequence and command id, mixed. It is not fit for secrets.
func seed(e sharding.EntityID, at journal.Sequence, id journal.CommandID) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for _, s := range [...]string{e.Type, e.ID, string(id)} {
		for i := 0; i < len(s); i++ {
			h = (h ^ uint64(s[i])) * prime
		}
		h *= prime
	}
	h ^= uint64(at)
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
