package sim

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// This file has the timers of an executor, and its snapshots of entities, which
// may truncate an entity's history. Time is counted in steps.

// timerName identifies a timer.
type timerName struct {
	entity sharding.EntityID
	name   string
}

// timerOps are the timers and schedules that a command sets and cancels.
type timerOps struct{ ops, schedules []byte }

// ticks is how often a schedule fires in total.
const ticks = 3

// timers draws the timer operations of a command.
func (m *messages) timers() (t timerOps) {
	if m == nil || !m.w.chance(2*m.often) {
		return t
	}
	for n := range 1 + m.w.rng.IntN(2) {
		op := journal.TimerOp{Name: fmt.Appendf(nil, "t%d", m.w.rng.IntN(3)), Cancel: m.w.rng.IntN(5) == 0}
		if !op.Cancel {
			op.Due, op.Command = int64(m.w.step+m.w.rng.IntN(300)), []byte("ring")
			if m.w.rng.IntN(3) == 0 {
				t.schedules = journal.AppendScheduleOp(t.schedules, &journal.ScheduleOp{Op: uint16(n), Schedule: journal.Schedule{Expression: []byte("often")}})
			}
		}
		t.ops = journal.AppendTimerOp(t.ops, op)
	}
	return t
}

// ring enqueues a command for each due timer. Sometimes it changes the due
// time, which the state machine must reject.
func (l *simExecutor) ring() {
	w := l.n.w
	if w.messages == nil || !l.active || l.broken || l.n.serves > l.bound || w.rng.IntN(3) > 0 {
		return
	}
	key := func(e sharding.EntityID, name string) journal.CommandID {
		return journal.CommandID("timer-" + name + "@" + e.ID)
	}
	skip := func(e sharding.EntityID, name string, _ int64) bool { return l.flight[key(e, name)] != nil }
	due, _, err := l.n.machine.product.machine.DueTimers(context.Background(), l.shard, int64(w.step), 4, skip)
	if err != nil {
		return // a snapshot is being installed
	}
	for i := range due {
		t := &due[i]
		c := &call{
			entity: t.Entity.ID, id: journal.CommandID(fmt.Sprintf("timer-%s-%d-%d", t.Name, t.Due, w.step)), key: key(t.Entity, t.Name),
			timer: t, serves: l.n.serves, answer: func(outcome, head) {},
		}
		if !w.healing && w.rng.IntN(25) == 0 {
			t.Due++
		} else if s := t.Schedule; s != nil && s.Made+1 < ticks {
			c.timers.ops = journal.AppendTimerOp(nil, journal.TimerOp{Name: []byte(t.Name), Due: int64(w.step + w.rng.IntN(100)), Command: t.Command})
			c.timers.schedules = journal.AppendScheduleOp(nil, &journal.ScheduleOp{Schedule: journal.Schedule{Expression: s.Expression, Made: s.Made + 1}})
		}
		if !l.enqueue(c) {
			return
		}
	}
}

// snapshot proposes a snapshot of a random entity, after which the first events
// of the entity may be truncated.
func (l *simExecutor) snapshot() {
	w := l.n.w
	if w.messages == nil || w.healing || !l.active || l.broken || !w.chance(60) {
		return
	}
	entities := l.n.machine.shards[l.shard].entities
	names := sorted(entities)
	if len(names) == 0 {
		return
	}
	name := names[w.rng.IntN(len(names))]
	e := entities[name]
	if e.sequence == 0 {
		return
	}
	l.number++
	data := journal.AppendPacedHeader(nil, sharding.MaxVersion, journal.EntrySnapshot, l.term, l.number)
	s := journal.Snapshot{
		Entity: chainEntity(name), Sequence: e.sequence, Hash: e.hash, Module: e.module, Window: 1 + journal.Sequence(w.rng.Uint64N(uint64(e.sequence))),
		Keep: uint8(1 + w.rng.IntN(2)), Retain: uint64(w.rng.IntN(8)), State: []byte("state"),
	}
	l.proposed[l.number] = &posting{finish: func(error) {}}
	if err := l.n.driver.Core().Propose(l.shard, l.term, l.number, journal.AppendSnapshot(data, &s)); err != nil {
		l.posted(l.number, err)
	}
}

// judgeSnapshot checks that the snapshot is of the entity's last event.
func (s *state) judgeSnapshot(body []byte) error {
	var snap journal.Snapshot
	if err := snap.Decode(body); err != nil {
		return err
	}
	if e := s.entities[snap.Entity.ID]; e == nil || e.sequence != snap.Sequence || e.hash != snap.Hash {
		return fmt.Errorf("the snapshot of %s is not of its last event", snap.Entity)
	}
	return nil
}

// ringer returns the timer that caused a record, if there is one.
func ringer(r *journal.Record) (t journal.TimerSource, ok bool, err error) {
	data := r.Section(journal.SectionSource)
	if data == nil || data[0] != journal.SourceTimer {
		return t, false, nil
	}
	t, err = journal.DecodeTimerSource(data)
	return t, true, err
}

// rings removes a timer from the ledger if the record says that the timer
// fired. It fails the run if the timer fired before it was due.
func (l *ledger) rings(a *account, r *journal.Record) {
	if t, ok, _ := ringer(r); ok {
		if r.RecordedAt < t.Due {
			l.w.fail("I12: timer %s of %s is due at %d and fires at %d", t.Name, r.Entity, t.Due, r.RecordedAt)
		}
		delete(a.timers, timerName{r.Entity, string(t.Name)})
		l.w.count.fired++
	}
	for ops := r.Section(journal.SectionTimers); len(ops) > 0; {
		op, rest, err := journal.NextTimerOp(ops)
		if err != nil {
			l.w.fail("a timer cannot be read: %v", err)
			return
		}
		ops = rest
		if n := (timerName{r.Entity, string(op.Name)}); op.Cancel {
			delete(a.timers, n)
		} else {
			a.timers[n] = op.Due
		}
	}
}

// verifyHistory reads the history of an entity from a replica. The history must
// be a suffix of the common history, and must begin at the same event on all
// replicas.
func (m *messages) verifyHistory(machine *eventlog.Machine, s sharding.ShardID, name string, e *entity) {
	w := m.w
	last, after := journal.Sequence(0), journal.Hash{}
	check := func(r *journal.Record, hash journal.Hash) error {
		last, after = r.Last(), hash
		if n := int(last); n > 0 && (n > len(e.records) || e.records[n-1].hash != hash) {
			return fmt.Errorf("event %d is another than that of the others", n)
		}
		return nil
	}
	history := eventlog.History{Machine: machine}
	err := history.Read(context.Background(), s, chainEntity(name), 0, check)
	first := journal.Sequence(1)
	if cut := (*journal.TruncatedError)(nil); errors.As(err, &cut) {
		first = cut.First
		err = history.Read(context.Background(), s, chainEntity(name), first, check)
	}
	if err != nil || last != e.sequence || e.sequence > 0 && after != e.hash {
		w.fail("I5: %s is read from %d to %d, it is at %d: %v", name, first, last, e.sequence, err)
	}
	if all, told := m.firsts[name]; told && all != first {
		w.fail("I5: %s begins at %d, that of another replica at %d", name, first, all)
	}
	if m.firsts[name] = first; first > 1 {
		w.count.shortened++
	}
}
