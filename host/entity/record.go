package entity

import (
	"bytes"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
)

// makeRoom proposes the open batch if the output does not fit into the same
// entry, and reports whether the caller may continue. If the log rejects that
// batch, entities are evicted, which may overwrite the output, so makeRoom
// decides the request again.
func (d *decider) makeRoom(e *entity, r *request.Request) bool {
	s := e.shard
	if recordFits(s.log.BatchBytes(), &d.output) {
		return true
	}
	n := s.log.Next()
	s.proposeBatch()
	if s.log.Next() == n || s.log.Has(n) {
		return true
	}
	if e.phase == inMemory { // the state in memory is ahead of the log
		d.exec.reload(e)
	}
	r.Again = true // other requests are served before it is decided again
	d.exec.dispatch(s, r)
	return false
}

// append adds the command's record to the shard's open batch and advances the
// entity's state in memory. It reports whether the entity is still in memory:
// a record may close the batch, and if the log refuses that batch at once,
// the entity is evicted and has no type.
func (d *decider) append(e *entity, r *request.Request, env Env, hash uint64) (resident bool) {
	s, fuel, phase := e.shard, d.fuel, e.phase
	rec := d.record.Begin(journal.Record{
		Entity: e.id, Term: s.term, RecordedAt: env.Now, Expected: e.sequence, Prev: e.hash,
		Module: e.typ.Digest, CommandID: r.ID, CommandHash: hash, Reply: d.output.Reply,
	})
	d.record.Fuel(fuel)
	d.record.Principal(e.typ.principalToRecord(r, d.opts.ClusterVersion()))
	d.record.Trace(r.Trace.ForRecord(d.opts.ClusterVersion()))
	d.fuel = 0
	d.timerSections(e, r, rec)
	d.messageSections(e, r, rec)
	d.runSection(e)
	if r.ServerID {
		rec.Flags |= journal.FlagServerID
	}
	d.record.Evolve(&d.output, e.typ.States.Event(), e.exists)
	e.exists = !d.output.Delete
	d.flagStop(e, r, rec)
	var encoded []byte
	e.hash, encoded = d.record.End()
	e.sequence = rec.Last()
	e.last = s.log.Next()
	if e.extra != nil {
		e.extra.faults.ResetCount()
	}
	s.clock = max(s.clock, env.Now) // during a long guest call, other commands have advanced the clock
	e.typ.BytesBudget.spend(d.now.UnixNano(), uint64(len(encoded)))
	s.log.AddRecord(d.opts.ClusterVersion(), s.term, encoded, proposedCommand[*entity]{Entity: e, Req: r})
	rows := s.log.AddRows(len(d.output.Timers) + len(d.output.Sends))
	reply := bytes.Clone(rec.Reply)
	r.Result = request.Result{Payload: reply, Sequence: e.sequence, EventCount: len(rec.Events), Fuel: fuel}
	if !isInternal(r) {
		d.note(e, window.Command{
			ID: r.ID, Hash: hash, Reply: reply, RecordedAt: env.Now, Sequence: e.sequence,
			Events: uint16(len(rec.Events)), Server: r.ServerID,
		})
	}
	switch {
	case r.Kind == request.Deliver:
		d.intake.Charge(e.id.Type, int64(fuel)+int64(byteFuel*len(encoded)))
	case timers.Of(r) != nil:
		d.timers.Owe(e.id.Type, len(encoded), fuel)
	}
	if !e.typ.Workflow || len(rec.Events) > 0 { // a repeated start does not lengthen a run
		e.replay.Add(len(rec.Events), len(encoded))
	}
	d.stats.Commands++
	d.stats.Events += uint64(len(rec.Events))
	if e.inst != nil { // a deletion without a guest has no instance
		e.inst.Pool().Counter(d.types, e.typ).Events(len(rec.Events))
	}
	s.touch()
	if rows >= batchRows || s.log.BatchBytes() >= d.opts.BatchBytes {
		s.proposeBatch()
	}
	return e.phase == phase
}

// batchRows is the number of timer and message rows at which an entry is
// proposed. Each replica that applies the entry may have to read every row, and
// a row may have only 20 bytes, so BatchBytes alone would allow 12,000 rows.
const batchRows = 512

// timerSections adds the timer sections to a record: the timer that caused it,
// and the timers that its guest set and cancelled.
func (d *decider) timerSections(e *entity, r *request.Request, rec *journal.Record) {
	s := e.shard
	if due := s.timers.Sections(rec, timers.Of(r), e.id, &d.output, s.log.Next(), s.log.DecidedTo()); due != 0 {
		s.log.AddTimer(due)
	}
}

// messageSections adds the message sections to a record: the message or dead
// letter that caused it, the messages that its guest sends, and the rejection
// if the entity rejects the message. It also counts the messages.
func (d *decider) messageSections(e *entity, r *request.Request, rec *journal.Record) {
	s, msg := e.shard, r.Delivery
	if e.typ.Workflow && !e.exists {
		e.beginChain(r)
	}
	switch r.Kind {
	case request.Deliver:
		source := s.sourceSection(msg)
		if e.typ.Workflow {
			source.Hops = e.chain()
		}
		d.record.Section(journal.SectionSource, journal.AppendMessageSource(nil, &source))
		rec.Reply = nil // a retry never gets the reply of a message
		e.noteReceipt(msg.Source, msg.Number, s.log.Next())
	case request.Redeliver:
		d.record.Section(journal.SectionSource, journal.AppendDeadLetterSource(nil, msg.DeadLetter))
	}
	m := messageTotals{Sent: len(d.output.Sends), Bytes: d.record.Messages(d.output.Sends)}
	if m.Sent > 0 {
		e.withMessages().outbox += m.Sent
	}
	if d.refusal != nil {
		m.DeadLetters = 1
		d.record.Section(journal.SectionRefusal, journal.AppendRefusal(nil, d.refusal))
		d.refusal = nil
	}
	s.log.AddMessages(m)
}

// flagStop marks the record of a request that passivates an always-on entity,
// so that the next leader does not start it.
func (d *decider) flagStop(e *entity, r *request.Request, rec *journal.Record) {
	if e.typ.AlwaysOn && !e.typ.Singleton && (d.output.Passivate || r.Kind == request.Passivate) {
		rec.Flags |= journal.FlagStopped
	}
}
