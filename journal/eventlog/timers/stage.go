package timers

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/eventlog/verdict"
	"github.com/hostd/hostd/journal/store"
)

// Stage collects the changes to timers by the entry being checked, one step per
// change. It is used by the applying goroutine.
type Stage struct {
	// Store is below all sets. Sums updates the checksums of rows. Both must be
	// set before use.
	Store kv.Viewer
	Sums  *rows.Writer

	steps    []Step
	changes  int           // number of changes in the entry's records
	ended    []*store.Head // rows of the entities whose incarnations end in the entry, once for each incarnation
	key, due []byte        // scratch
}

// endAtOnce is the maximum number of timers that a deletion removes in its own
// entry. If there are more, it ends the incarnation, and they are removed in
// slices later.
const endAtOnce = 16

// Reset discards the steps.
func (s *Stage) Reset() { s.steps, s.ended, s.changes = s.steps[:0], s.ended[:0], 0 }

// Changes returns the number of timer changes in the entry's records. Unlike
// the number of steps, which includes deletions, it is the same on all
// replicas.
func (s *Stage) Changes() int { return s.changes }

// Steps returns the steps so far. They are valid until Reset.
func (s *Stage) Steps() []Step { return s.steps }

// Entity describes the entity whose timers are checked: its encoded name, its
// row before the entry, and the timer set of its shard.
type Entity struct {
	Key  string
	Head *store.Head
	Set  *Set
}

// life returns the incarnation of an entity after the entry so far.
func (s *Stage) life(e Entity) uint32 {
	life := e.Head.Life
	for _, h := range s.ended {
		if h == e.Head {
			life++
		}
	}
	return life
}

// keyOf returns the key prefix of an incarnation's timers.
func (e *Entity) keyOf(life uint32) string {
	if life == 0 {
		return e.Key
	}
	return string(store.AppendLife([]byte(e.Key), life))
}

// Step is one change by a record: to a timer or, if end is set, the end of the
// entity's incarnation.
type Step struct {
	key   string
	timer store.Timer
	due   int64 // before the entry; only valid if has is set
	has   bool
	said  bool // a record contains the change; otherwise it follows from a deletion
	// end holds the stored form of the timers that were in the entity's row before
	// the entry and are not in the memtable. It is nil if the step changes a
	// timer.
	end map[string]store.Timer
}

// Key returns the timer's key: its entity and name.
func (s *Step) Key() string { return s.key }

// IsSet reports whether the timer was set before the entry.
func (s *Step) IsSet() bool { return s.has }

// Set makes the step set the timer.
func (s *Step) Set(t store.Timer) { s.timer = t }

// Record checks the timer changes in a record and stages them.
func (s *Stage) Record(e Entity, v *journal.RecordView) error {
	trace := v.TraceContext()
	if trace != nil && trace.Flags&journal.TraceAfterTimer != 0 {
		trace = nil
	}
	if source := v.Section(journal.SectionSource); len(source) > 0 && source[0] == journal.SourceTimer {
		from, err := journal.DecodeTimerSource(source)
		if err != nil {
			return err
		}
		step, err := s.Find(e, from.Name)
		if err != nil {
			return err
		}
		if !step.has || step.due != from.Due {
			return fmt.Errorf("%w: the timer that caused the record does not exist", verdict.ErrInvalid)
		}
		s.say(step)
	}
	schedules := v.Section(journal.SectionSchedules)
	for n, ops := 0, v.Section(journal.SectionTimers); len(ops) > 0; n++ {
		op, rest, err := journal.NextTimerOp(ops)
		if err != nil {
			return err
		}
		ops = rest
		if bytes.IndexByte(op.Name, 0) >= 0 {
			return fmt.Errorf("%w: invalid timer name", verdict.ErrInvalid)
		}
		step, err := s.Find(e, op.Name)
		if err != nil {
			return err
		}
		step.timer = store.Timer{Due: op.Due, Command: op.Command, Payload: op.Payload, Trace: trace}
		if step.timer.Schedule, schedules, err = scheduleOf(schedules, n); err != nil {
			return err
		}
		s.say(step)
	}
	if len(schedules) > 0 {
		return fmt.Errorf("%w: a schedule without a timer", verdict.ErrInvalid)
	}
	return nil
}

func (s *Stage) say(step Step) {
	step.said = true
	s.steps = append(s.steps, step)
	s.changes++
}

// scheduleOf reads the schedule of a record's n-th timer from the section, if
// it has one.
func scheduleOf(section []byte, n int) (schedule, rest []byte, err error) {
	if len(section) == 0 {
		return nil, section, nil
	}
	op, rest, err := journal.NextScheduleOp(section)
	if err != nil || int(op.Op) != n {
		return nil, section, err
	}
	return section[2 : len(section)-len(rest)], rest, nil
}

// Find returns a timer's state before the entry.
func (s *Stage) Find(e Entity, name []byte) (step Step, err error) {
	life := s.life(e)
	step.key = e.keyOf(life) + string(name)
	if life == e.Head.Life {
		step.due, step.has, err = s.find(e, step.key, string(name))
	}
	return step, err
}

// find returns the due time of a timer of the current incarnation, if it was
// set before the entry. A timer that is not in the entity's row is looked up in
// the memtable and then in the store, unless its row is known not to exist.
func (s *Stage) find(e Entity, key, name string) (due int64, has bool, err error) {
	if due, has = e.Head.Set.Find(name); has || !e.Head.TimerRows() {
		return due, has, nil
	}
	if t, ok := e.Set.findChange(key); ok {
		return t.timer.Due, !t.isCancelled(), nil
	}
	s.key = append(s.key[:0], key...)
	l := e.Set.rows.Lookup(&s.Sums.RowHasher, store.ClassTimer, s.key)
	if l.IsAbsent() {
		return 0, false, nil
	}
	view, err := s.Store.View()
	if err != nil {
		return 0, false, err
	}
	defer view.Close()
	full := append(store.AppendPrefix(nil, e.Set.rows.Shard, e.Set.rows.Generation, store.ClassTimer), key...)
	has, err = view.Get(full, func(body []byte) (err error) {
		due, err = store.DecodeDue(body)
		return err
	})
	if err == nil {
		s.due = store.AppendDue(s.due[:0], due)
		err = l.CheckRow(&s.Sums.RowHasher, view, store.ClassTimer, s.key, s.due, has)
	}
	return due, has, err
}

// Commit makes the steps of an entity visible and returns their size. The
// entity's row is its current row. The lock must be held.
func (s *Stage) Commit(e Entity, steps []Step) (bytes int) {
	for i := range steps {
		if steps[i].end != nil {
			s.endLife(e, &steps[i])
		} else {
			s.commit(e, &steps[i])
		}
	}
	e.Set.rows.CountTimers(e.Key, e.Head)
	return len(steps) * stepBytes
}

func (s *Stage) commit(e Entity, step *Step) {
	set, h := e.Set, e.Head
	c, again := change{}, false
	if before, ok := set.fresh.get(step.key); ok {
		c, again = *before, true
	}
	name := step.key[len(e.keyOf(h.Life)):]
	_, inHead := h.Set.Find(name)
	had, was := step.has, step.due
	if again {
		had, was = !c.isCancelled(), c.timer.Due
	} else {
		c.stored, c.has, c.storedRow = step.due, step.has, step.has && !inHead
	}
	c.timer, c.row = step.timer, false
	switch {
	case c.isCancelled():
		h.Set = h.Set.Without(name)
	case had && !inHead:
		c.row = true
	default:
		with, room := h.Set.With(name, step.timer.Due)
		h.Set, c.row = with, !room
	}
	if due := step.timer.Due; !c.isCancelled() {
		set.floor, set.lowest = min(set.floor, due), min(set.lowest, due)
	}
	set.put(step.key, c)
	s.Sums.Timer(set.rows, step.key, rows.TimerOf(was, had, inHead), rows.TimerOf(step.timer.Due, !c.isCancelled(), !c.row))
	switch has := !c.isCancelled(); {
	case has && !had:
		h.Timers++
	case had && !has:
		h.Timers--
	}
}

// stepBytes estimates the memory overhead of a change.
const stepBytes = 200

// Delete stages the deletion of all timers of an entity. If the entity has many
// timers and lives is set, as it is for entries from sharding.VersionPacedWork
// on, Delete leaves them to Sweep. Otherwise Delete takes time proportional to
// their number.
func (s *Stage) Delete(e Entity, lives bool) error {
	if e.Head.Timers == 0 && len(s.steps) == 0 {
		return nil
	}
	life := s.life(e)
	prefix := e.keyOf(life)
	names, said := make(map[string]struct{}), 0
	for i := range s.steps {
		if name, ok := strings.CutPrefix(s.steps[i].key, prefix); ok && s.steps[i].end == nil && (life > 0 || name[0] != 0) {
			names[name] = struct{}{}
			if s.steps[i].said {
				said++
			}
		}
	}
	before := life == e.Head.Life // an incarnation that starts in this entry has timers only in this entry
	// Do not use the number of names: earlier steps may have deleted timers
	// that only this replica still has in its memtable.
	if lives && (before && int(e.Head.Timers) > endAtOnce || said > endAtOnce) {
		return s.deleteLife(e, before)
	}
	set := uint32(0)
	if before {
		if err := s.names(e, prefix, names); err != nil {
			return err
		}
	}
	for name := range names {
		step := Step{key: prefix + name}
		if before {
			var err error
			if step.due, step.has, err = s.find(e, step.key, name); err != nil {
				return err
			}
		}
		if step.has {
			set++
		}
		s.steps = append(s.steps, step)
	}
	if before && set != e.Head.Timers {
		return e.Set.rows.ReportDamage(missing(int(set), e.Head.Timers))
	}
	return nil
}

// names adds to names the timers that the entity had before the entry.
func (s *Stage) names(e Entity, prefix string, names map[string]struct{}) error {
	for _, layer := range [...]*Changes{e.Set.fresh, e.Set.taken} {
		for key := range layer.from(prefix) {
			name, ok := strings.CutPrefix(key, prefix)
			if !ok {
				break
			}
			names[name] = struct{}{}
		}
	}
	for name := range e.Head.Set.All {
		names[name] = struct{}{}
	}
	if !e.Head.TimerRows() {
		return nil
	}
	view, err := s.Store.View()
	if err != nil {
		return err
	}
	defer view.Close()
	return eachRow(view, e.Set.rows, prefix, func(t Place) error {
		names[t.Key[len(prefix):]] = struct{}{}
		return nil
	})
}

// deleteLife stages the end of an entity's incarnation. It reads the stored
// form of the few timers in the entity's row, which get rows of their own.
func (s *Stage) deleteLife(e Entity, before bool) error {
	step := Step{end: make(map[string]store.Timer)}
	if before && len(e.Head.Set) > 0 {
		view, err := s.Store.View()
		if err != nil {
			return err
		}
		defer view.Close()
		prefix := e.keyOf(e.Head.Life)
		for name, due := range e.Head.Set.All {
			if _, ok := e.Set.findChange(prefix + name); ok {
				continue
			}
			if step.end[name], err = Read(view, e.Set.rows, Place{due, prefix + name}); err != nil {
				return err
			}
		}
	}
	s.steps, s.ended = append(s.steps, step), append(s.ended, e.Head)
	return nil
}

// endLife starts the next incarnation of an entity. Timers in its row get rows
// of their own, because replicas differ in which timers are in the row, while
// Sweep must remove the same rows everywhere.
func (s *Stage) endLife(e Entity, step *Step) {
	set, h := e.Set, e.Head
	prefix := e.keyOf(h.Life)
	for name, due := range h.Set.All {
		key := prefix + name
		c := change{stored: due, has: true}
		if in, ok := set.fresh.get(key); ok {
			c = *in
		} else if in, ok := set.taken.get(key); ok {
			c.timer = in.timer
		} else {
			c.timer = step.end[name]
		}
		c.row = true
		set.put(key, c)
		s.Sums.Timer(set.rows, key, rows.TimerOf(due, true, true), rows.TimerOf(due, true, false))
	}
	h.Left += h.Timers
	h.Timers, h.Set = 0, ""
	h.Life++
	set.rows.Owe(e.Key, h)
}

func missing(found int, want uint32) error {
	return &store.DamageError{Where: "the timers of an entity", What: fmt.Sprintf("found %d, but the entity row counts %d", found, want), Action: rows.ActionReplace}
}
