package eventlog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// timerChange is what an entry did to one timer: it is set, or gone.
type timerChange struct {
	timer store.Timer // Command is empty when it is gone
	row   bool        // it is under store.ClassTimer: its head has no room for it
	// stored is the due time under which the layer below has the timer; only
	// with has. storedRow: there it is under store.ClassTimer.
	stored    int64
	has       bool
	storedRow bool
}

func (t *timerChange) gone() bool { return len(t.timer.Command) == 0 }

// timers are a shard's timers that are not in the store yet, by entity and
// name as keys hold them: first those that no batch has taken, then those of
// the batch on its way.
type timers struct {
	fresh, taken map[string]timerChange

	// No timer in the store is due before floor, if it is known: below it there
	// may be many deleted keys. lowest is the earliest that was set since the latest
	// of the readers began, which is the one that may raise the floor.
	floor   int64
	known   bool
	lowest  int64
	readers uint64 // that ever began
}

// timerStep is one change that a record being judged makes.
type timerStep struct {
	key   string
	timer store.Timer
	due   int64 // as of before the entry; only with has
	has   bool
}

// judgeTimers checks what a record says about timers and leaves the changes in
// m.steps.
func (m *Machine) judgeTimers(sh *shard, h *head, v *journal.RecordView) error {
	if source := v.Section(journal.SectionSource); len(source) > 0 && source[0] == journal.SourceTimer {
		s, err := journal.DecodeTimerSource(source)
		if err != nil {
			return err
		}
		step, err := m.timerStep(sh, h, s.Name)
		if err != nil {
			return err
		}
		if checkDue && (!step.has || step.due != s.Due) {
			return fmt.Errorf("%w: its timer is not set", ErrInvalid)
		}
		m.steps = append(m.steps, step)
	}
	schedules := v.Section(journal.SectionSchedules)
	for n, ops := 0, v.Section(journal.SectionTimers); len(ops) > 0; n++ {
		op, rest, err := journal.NextTimerOp(ops)
		if err != nil {
			return err
		}
		ops = rest
		if bytes.IndexByte(op.Name, 0) >= 0 {
			return fmt.Errorf("%w: a timer's name cannot be a key", ErrInvalid)
		}
		step, err := m.timerStep(sh, h, op.Name)
		if err != nil {
			return err
		}
		step.timer = store.Timer{Due: op.Due, Command: op.Command, Payload: op.Payload}
		if step.timer.Schedule, schedules, err = scheduleOf(schedules, n); err != nil {
			return err
		}
		m.steps = append(m.steps, step)
	}
	if len(schedules) > 0 {
		return fmt.Errorf("%w: a schedule is that of no timer", ErrInvalid)
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

// timerStep finds a timer as it is before the entry.
func (m *Machine) timerStep(sh *shard, h *head, name []byte) (s timerStep, err error) {
	s.key = h.key + string(name)
	s.due, s.has, err = m.timerDue(sh, h, s.key)
	return s, err
}

// timerDue says when a timer of the entity is due, if it is set. What is not in
// the head, which is of now, is in what has changed or in the store.
func (m *Machine) timerDue(sh *shard, h *head, key string) (due int64, has bool, err error) {
	if due, has = h.Set.Find(key[len(h.key):]); has || !h.TimerRows() {
		return due, has, nil
	}
	for _, layer := range [...]map[string]timerChange{sh.timers.fresh, sh.timers.taken} {
		if t, ok := layer[key]; ok {
			return t.timer.Due, !t.gone(), nil
		}
	}
	view, err := m.st.ViewAt(m.readAt)
	if err != nil {
		m.failStore(err)
		return 0, false, err
	}
	defer view.Close()
	full := append(store.AppendPrefix(nil, sh.id, sh.generation, store.ClassTimer), key...)
	has, err = view.Get(full, func(body []byte) (err error) {
		due, err = store.DecodeDue(body)
		return err
	})
	if err != nil {
		m.failStore(err)
	}
	return due, has, err
}

// changeTimers makes the steps visible. The caller holds the lock.
func (sh *shard) changeTimers(h *head, steps []timerStep) {
	for i := range steps {
		s := &steps[i]
		if sh.timers.fresh == nil {
			sh.timers.fresh = make(map[string]timerChange)
		}
		change, again := sh.timers.fresh[s.key]
		name := s.key[len(h.key):]
		_, held := h.Set.Find(name)
		had := s.has
		if again {
			had = !change.gone()
		} else {
			change.stored, change.has, change.storedRow = s.due, s.has, s.has && !held
		}
		change.timer, change.row = s.timer, false
		switch {
		case change.gone():
			h.Set = h.Set.Without(name)
		case had && !held:
			change.row = true
		default:
			set, room := h.Set.With(name, s.timer.Due)
			h.Set, change.row = set, !room
		}
		if due := s.timer.Due; !change.gone() {
			sh.timers.floor, sh.timers.lowest = min(sh.timers.floor, due), min(sh.timers.lowest, due)
		}
		sh.timers.fresh[s.key] = change
		switch has := !change.gone(); {
		case has && !had:
			h.Timers++
		case had && !has:
			h.Timers--
		}
	}
}

// timerBytes is about what a change costs in memory beside its record.
const timerBytes = 200

// judgeDeletion leaves the end of all the entity's timers in m.steps.
func (m *Machine) judgeDeletion(sh *shard, h *head) error {
	if h.Timers == 0 && len(m.steps) == 0 {
		return nil
	}
	keys := make(map[string]struct{})
	for _, layer := range [...]map[string]timerChange{sh.timers.fresh, sh.timers.taken} {
		for key := range layer {
			if len(key) > len(h.key) && key[:len(h.key)] == h.key {
				keys[key] = struct{}{}
			}
		}
	}
	for i := range m.steps {
		if key := m.steps[i].key; len(key) > len(h.key) && key[:len(h.key)] == h.key {
			keys[key] = struct{}{}
		}
	}
	for name := range h.Set.All {
		keys[h.key+name] = struct{}{}
	}
	if h.TimerRows() {
		if err := m.storedTimers(sh, h, keys); err != nil {
			return err
		}
	}
	for key := range keys {
		s := timerStep{key: key}
		var err error
		if s.due, s.has, err = m.timerDue(sh, h, key); err != nil {
			return err
		}
		m.steps = append(m.steps, s)
	}
	return nil
}

// storedTimers adds the entity's timers that the store has beside its head.
func (m *Machine) storedTimers(sh *shard, h *head, keys map[string]struct{}) error {
	view, err := m.st.ViewAt(m.readAt)
	if err != nil {
		m.failStore(err)
		return err
	}
	defer view.Close()
	err = eachTimerRow(view, sh.id, sh.generation, h.key, func(t timerPlace) error {
		keys[t.key] = struct{}{}
		return nil
	})
	if err != nil {
		m.failStore(err)
	}
	return err
}

func (t *timers) take() map[string]timerChange {
	t.taken, t.fresh = t.fresh, nil
	return t.taken
}

// putTimers writes the timers of a shard that have changed.
func (b *Batch) putTimers(w *shardWrite) {
	keys := b.keys[:0]
	for key := range w.timers {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		t := w.timers[key]
		if t.has && (t.gone() || t.stored != t.timer.Due) {
			b.kvs.Delete(append(store.AppendDue(b.prefix(w.shard, store.ClassDue), t.stored), key...))
		}
		if t.storedRow && !t.row {
			b.kvs.Delete(append(b.prefix(w.shard, store.ClassTimer), key...))
		}
		if t.gone() {
			continue
		}
		if t.row {
			b.kvs.Put(append(b.prefix(w.shard, store.ClassTimer), key...), store.AppendDue(nil, t.timer.Due))
		}
		b.kvs.Put(append(store.AppendDue(b.prefix(w.shard, store.ClassDue), t.timer.Due), key...), store.AppendTimer(nil, &t.timer))
	}
	b.keys = keys
}

// DueTimers returns the timers of a shard that are due by then, the oldest
// first, at most limit of those that skip does not refuse, and when the next
// one after them is due, math.MaxInt64 for none. It reads the store and what
// was applied since as of one moment. The slices are the caller's; they share
// pieces of memory.
func (m *Machine) DueTimers(ctx context.Context, id sharding.ShardID, by int64, limit int,
	skip func(e sharding.EntityID, name string, due int64) bool) (due []journal.Timer, next int64, err error) {
	c := timerCursor{skip: skip, limit: limit, by: by, next: math.MaxInt64, first: math.MaxInt64, ctx: ctx}
	view, sh, err := m.timerLayers(id, &c)
	if sh == nil || err != nil {
		if err != nil {
			err = fmt.Errorf("read timers of shard %d: %w", id, err)
		}
		return nil, math.MaxInt64, err
	}
	defer view.Close()
	class := store.AppendPrefix(nil, id, sh.generation, store.ClassDue)
	err = view.Scan(class, store.AppendDue(class[:len(class):len(class)], c.from), func(key, body []byte) error { return c.stored(key[len(class):], body) })
	if err == nil && !c.done {
		err = c.rest(math.MaxInt64, nil)
	}
	if err != nil && !c.done {
		return nil, 0, fmt.Errorf("read timers of shard %d: %w", id, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if sh.timers.readers == c.reader {
		sh.timers.known, sh.timers.floor = true, min(c.first, sh.timers.lowest)
	}
	return c.due, c.next, nil
}

// timerLayers copies the overlay, and returns the view below it; nothing for a
// shard that has no state.
func (m *Machine) timerLayers(id sharding.ShardID, c *timerCursor) (View, *shard, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c.changed = make(map[string]struct{})
	sh := m.shards[id]
	if sh == nil || sh.importing() {
		return nil, nil, nil
	}
	if c.from = math.MinInt64; sh.timers.known {
		c.from = sh.timers.floor
	}
	sh.timers.lowest = math.MaxInt64
	sh.timers.readers++
	c.reader = sh.timers.readers
	for _, layer := range [...]map[string]timerChange{sh.timers.fresh, sh.timers.taken} {
		for key, t := range layer {
			if _, newer := c.changed[key]; newer {
				continue
			}
			c.changed[key] = struct{}{}
			if !t.gone() {
				c.fresh = append(c.fresh, freshTimer{key, t.timer})
			}
		}
	}
	slices.SortFunc(c.fresh, func(a, b freshTimer) int {
		return cmp.Or(cmp.Compare(a.timer.Due, b.timer.Due), cmp.Compare(a.key, b.key))
	})
	view, err := m.st.ViewAt(m.readAt)
	return view, sh, err
}

type freshTimer struct {
	key   string
	timer store.Timer
}

// timerCursor merges the timers of the store with those of the overlay, in the
// order of their due times.
type timerCursor struct {
	ctx     context.Context
	fresh   []freshTimer
	changed map[string]struct{}
	skip    func(sharding.EntityID, string, int64) bool
	limit   int
	by      int64
	reader  uint64
	from    int64 // no timer is due before
	first   int64 // the first that was met is due then
	due     []journal.Timer
	keys    strings.Builder // what due's strings are parts of, and bodies its slices
	bodies  []byte
	next    int64
	done    bool // next is known
}

// Many timers are read long before their turn, and each object is one more for
// the collector to mark: so they share pieces of memory, of cursorPiece at first
// and cursorPieces at most.
const (
	cursorPiece  = 256
	cursorPieces = 4 << 10
)

func (c *timerCursor) keepKey(key []byte) string {
	if b := &c.keys; b.Cap()-b.Len() < len(key) {
		size := max(cursorPiece, len(key), min(2*b.Cap(), cursorPieces))
		c.keys = strings.Builder{}
		c.keys.Grow(size)
	}
	from := c.keys.Len()
	c.keys.Write(key)
	return c.keys.String()[from:]
}

func (c *timerCursor) keepBody(body []byte) []byte {
	if cap(c.bodies)-len(c.bodies) < len(body) {
		c.bodies = make([]byte, 0, max(cursorPiece, len(body), min(2*cap(c.bodies), cursorPieces)))
	}
	from := len(c.bodies)
	c.bodies = append(c.bodies, body...)
	return c.bodies[from:len(c.bodies):len(c.bodies)]
}

func (c *timerCursor) stored(rest, body []byte) error {
	due, key, err := store.CutDue(rest)
	if err != nil {
		return err
	}
	if err := c.rest(due, key); err != nil {
		return err
	}
	if _, newer := c.changed[string(key)]; newer {
		return c.ctx.Err()
	}
	t, err := store.DecodeTimer(c.keepBody(body), due)
	if err != nil {
		return err
	}
	return c.add(c.keepKey(key), t)
}

// rest adds what the overlay has before a timer of the store, all of it for a
// nil key.
func (c *timerCursor) rest(due int64, key []byte) error {
	for len(c.fresh) > 0 {
		f := c.fresh[0]
		if key != nil && (f.timer.Due > due || f.timer.Due == due && f.key > string(key)) {
			return nil
		}
		c.fresh = c.fresh[1:]
		if err := c.add(f.key, ownTimer(f.timer)); err != nil {
			return err
		}
	}
	return nil
}

func (c *timerCursor) add(key string, t store.Timer) error {
	timer, err := timerOf(key, &t)
	if err != nil {
		return err
	}
	c.first = min(c.first, t.Due)
	if c.skip != nil && c.skip(timer.Entity, timer.Name, t.Due) {
		return c.ctx.Err()
	}
	if t.Due > c.by || len(c.due) == c.limit {
		c.next, c.done = t.Due, true
		return store.ErrStop
	}
	c.due = append(c.due, timer)
	return c.ctx.Err()
}
