package timers

import (
	"bytes"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/eventlog/verdict"
	"github.com/hostd/hostd/journal/store"
)

// Stage is what the entry being judged does to timers, a step for each change.
// It serves the goroutine that applies.
type Stage struct {
	// View is of what is in the store, below all sets; Sums keeps what is known
	// of rows. Both are set before use.
	View func() (kv.View, error)
	Sums *rows.Writer

	steps    []Step
	key, due []byte // scratch
}

// Reset forgets the steps.
func (s *Stage) Reset() { s.steps = s.steps[:0] }

// Steps are those so far. They are lent until Reset.
func (s *Stage) Steps() []Step { return s.steps }

// Entity is whose timers are judged: its name as keys hold it, its head as it
// is before the entry, and the set of its shard.
type Entity struct {
	Key  string
	Head *store.Head
	Set  *Set
}

// Step is one change that a record being judged makes.
type Step struct {
	key   string
	timer store.Timer
	due   int64 // as of before the entry; only with has
	has   bool
}

// Key is the timer's, of its entity and name.
func (s *Step) Key() string { return s.key }

// Is says whether the timer was set before the entry.
func (s *Step) Is() bool { return s.has }

// Set makes the step set the timer.
func (s *Step) Set(t store.Timer) { s.timer = t }

// Record checks what a record of an entity says about timers and stages the
// changes.
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
			return fmt.Errorf("%w: its timer is not set", verdict.ErrInvalid)
		}
		s.steps = append(s.steps, step)
	}
	schedules := v.Section(journal.SectionSchedules)
	for n, ops := 0, v.Section(journal.SectionTimers); len(ops) > 0; n++ {
		op, rest, err := journal.NextTimerOp(ops)
		if err != nil {
			return err
		}
		ops = rest
		if bytes.IndexByte(op.Name, 0) >= 0 {
			return fmt.Errorf("%w: a timer's name cannot be a key", verdict.ErrInvalid)
		}
		step, err := s.Find(e, op.Name)
		if err != nil {
			return err
		}
		step.timer = store.Timer{Due: op.Due, Command: op.Command, Payload: op.Payload, Trace: trace}
		if step.timer.Schedule, schedules, err = scheduleOf(schedules, n); err != nil {
			return err
		}
		s.steps = append(s.steps, step)
	}
	if len(schedules) > 0 {
		return fmt.Errorf("%w: a schedule is that of no timer", verdict.ErrInvalid)
	}
	return nil
}

// scheduleOf takes the schedule of a record's n-th timer off the section, if
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

// Find returns a timer as it is before the entry.
func (s *Stage) Find(e Entity, name []byte) (step Step, err error) {
	step.key = e.Key + string(name)
	step.due, step.has, err = s.find(e, step.key)
	return step, err
}

// find says when a timer of the entity is due, if it is set. What is not in
// the head, which is of now, is in what has changed or in the store.
func (s *Stage) find(e Entity, key string) (due int64, has bool, err error) {
	if due, has = e.Head.Set.Find(key[len(e.Key):]); has || !e.Head.TimerRows() {
		return due, has, nil
	}
	for _, layer := range [...]map[string]change{e.Set.fresh, e.Set.taken} {
		if t, ok := layer[key]; ok {
			return t.timer.Due, !t.gone(), nil
		}
	}
	view, err := s.View()
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
		s.key, s.due = append(s.key[:0], key...), store.AppendDue(s.due[:0], due)
		l := e.Set.rows.Lookup(&s.Sums.RowHasher, store.ClassTimer, s.key)
		err = l.Row(&s.Sums.RowHasher, view, store.ClassTimer, s.key, s.due, has)
	}
	return due, has, err
}

// Commit makes steps of an entity visible, whose head is now of now, and
// returns their size. The caller holds the lock.
func (s *Stage) Commit(e Entity, steps []Step) (bytes int) {
	for i := range steps {
		s.commit(e, &steps[i])
	}
	return len(steps) * stepBytes
}

func (s *Stage) commit(e Entity, step *Step) {
	set, h := e.Set, e.Head
	if set.fresh == nil {
		set.fresh = make(map[string]change)
	}
	c, again := set.fresh[step.key]
	name := step.key[len(e.Key):]
	_, inHead := h.Set.Find(name)
	had, was := step.has, step.due
	if again {
		had, was = !c.gone(), c.timer.Due
	} else {
		c.stored, c.has, c.storedRow = step.due, step.has, step.has && !inHead
	}
	c.timer, c.row = step.timer, false
	switch {
	case c.gone():
		h.Set = h.Set.Without(name)
	case had && !inHead:
		c.row = true
	default:
		with, room := h.Set.With(name, step.timer.Due)
		h.Set, c.row = with, !room
	}
	if due := step.timer.Due; !c.gone() {
		set.floor, set.lowest = min(set.floor, due), min(set.lowest, due)
	}
	set.fresh[step.key] = c
	s.Sums.Timer(set.rows, step.key, rows.TimerOf(was, had, inHead), rows.TimerOf(step.timer.Due, !c.gone(), !c.row))
	switch has := !c.gone(); {
	case has && !had:
		h.Timers++
	case had && !has:
		h.Timers--
	}
}

// stepBytes is about what a change costs in memory beside its record.
const stepBytes = 200

// Delete stages the end of all timers of an entity.
func (s *Stage) Delete(e Entity) error {
	if e.Head.Timers == 0 && len(s.steps) == 0 {
		return nil
	}
	keys := make(map[string]struct{})
	for _, layer := range [...]map[string]change{e.Set.fresh, e.Set.taken} {
		for key := range layer {
			if len(key) > len(e.Key) && key[:len(e.Key)] == e.Key {
				keys[key] = struct{}{}
			}
		}
	}
	for i := range s.steps {
		if key := s.steps[i].key; len(key) > len(e.Key) && key[:len(e.Key)] == e.Key {
			keys[key] = struct{}{}
		}
	}
	for name := range e.Head.Set.All {
		keys[e.Key+name] = struct{}{}
	}
	if e.Head.TimerRows() {
		if err := s.storedTimers(e, keys); err != nil {
			return err
		}
	}
	set := uint32(0)
	for key := range keys {
		step := Step{key: key}
		var err error
		if step.due, step.has, err = s.find(e, key); err != nil {
			return err
		}
		if step.has {
			set++
		}
		s.steps = append(s.steps, step)
	}
	if set != e.Head.Timers {
		return e.Set.rows.Damaged(missing(int(set), e.Head.Timers))
	}
	return nil
}

func missing(found int, want uint32) error {
	return &store.DamageError{Where: "the timers of an entity", What: fmt.Sprintf("%d are there, its head counts %d", found, want), Action: rows.ActionReplace}
}

// storedTimers adds the entity's timers that the store has beside its head.
func (s *Stage) storedTimers(e Entity, keys map[string]struct{}) error {
	view, err := s.View()
	if err != nil {
		return err
	}
	defer view.Close()
	err = eachRow(view, e.Set.rows, e.Key, func(t Place) error {
		keys[t.Key] = struct{}{}
		return nil
	})
	return err
}
