package timers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Source gives readers access to the timers of shards.
type Source interface {
	// Timers returns the timers of a shard, nil if there are none or if they have
	// to wait, or journal.ErrInstalling. It always acquires the lock, even if it
	// fails, and the caller must call Unlock. If alone is set, the lock is held
	// exclusively.
	Timers(id sharding.ShardID, alone bool) (*Set, error)
	// Head returns the row of an entity that is in memory.
	Head(id sharding.ShardID, entity string) (h store.Head, ok bool)
	// View returns a view of the store, which is below the set.
	View() (kv.View, error)
	Unlock(alone bool)
}

// Lists reads the timers of shards. Each read sees a consistent snapshot of the
// store and the memtable. It is safe for concurrent use.
type Lists struct{ Of Source }

// DueTimers returns up to limit timers of a shard that are due at time by,
// oldest first, except those for which skip returns true. It also returns the
// due time of the next timer after them, or math.MaxInt64 if there is none. The
// slices belong to the caller; their elements share memory.
func (l Lists) DueTimers(ctx context.Context, id sharding.ShardID, by int64, limit int,
	skip func(e sharding.EntityID, name string, due int64) bool) (due []journal.Timer, next int64, err error) {
	c := cursor{skip: skip, limit: limit, by: by, next: math.MaxInt64, first: math.MaxInt64, proven: math.MinInt64, ctx: ctx}
	view, set, err := l.layers(id, &c)
	if set == nil || err != nil {
		if err != nil {
			err = fmt.Errorf("read timers of shard %d: %w", id, err)
		}
		return nil, math.MaxInt64, err
	}
	defer view.Close()
	c.arrange(math.MinInt64)
	class := store.AppendPrefix(nil, id, set.rows.Generation, store.ClassDue)
	err = view.Scan(class, store.AppendDue(class[:len(class):len(class)], c.from), func(key, body []byte) error { return c.addStored(key[len(class):], body) })
	if err == nil && !c.done {
		if err = c.addBefore(math.MaxInt64, nil); errors.Is(err, store.ErrStop) {
			err = nil
		}
	}
	if err != nil && !c.done {
		return nil, 0, fmt.Errorf("read timers of shard %d: %w", id, set.rows.NoteDamage(err))
	}
	if !c.done && !c.expected.IsComplete() {
		c.missing = true
	}
	if c.missing {
		return nil, 0, fmt.Errorf("read timers of shard %d: %w", id, set.rows.ReportMissing(store.ClassDue))
	}
	_, _ = l.Of.Timers(id, true)
	defer l.Of.Unlock(true)
	if set.readers == c.reader {
		set.known, set.floor = true, min(c.first, set.lowest)
	}
	return c.due, c.next, nil
}

// layers copies the memtable and returns the view of the store below it. The
// set is nil if the shard has no state.
func (l Lists) layers(id sharding.ShardID, c *cursor) (kv.View, *Set, error) {
	defer l.Of.Unlock(true)
	set, err := l.Of.Timers(id, true)
	if set == nil {
		return nil, nil, err
	}
	if c.from = math.MinInt64; set.known {
		c.from = set.floor
	}
	set.lowest = math.MaxInt64
	set.readers++
	c.reader = set.readers
	c.expected = set.rows.ExpectDue(c.from, c.by)
	c.capture(set)
	view, err := l.Of.View()
	return view, set, err
}

// capture captures the memtable. It keeps the layer of the batch in flight as
// it is, because that layer no longer changes, and copies references to the
// changes in the other layer. The lock must be held.
func (c *cursor) capture(set *Set) {
	c.lives = set.rows.Lives()
	if c.taken = set.taken; set.fresh == nil {
		return
	}
	c.newest = make([]keyedChange, 0, set.fresh.all.Len())
	for key, t := range set.fresh.all.All {
		c.newest = append(c.newest, keyedChange{key, t})
	}
}

// arrange sorts, by due time, the captured timers that are due at time from or
// later.
func (c *cursor) arrange(from int64) {
	for _, k := range c.newest {
		if t := k.change; !t.isCancelled() && t.timer.Due >= from {
			c.fresh = append(c.fresh, freshTimer{k.key, t.timer})
		}
	}
	for key, t := range c.taken.from("") {
		if t.isCancelled() || t.timer.Due < from {
			continue
		}
		if !c.isNewest(key) {
			c.fresh = append(c.fresh, freshTimer{key, t.timer})
		}
	}
	slices.SortFunc(c.fresh, func(a, b freshTimer) int {
		return cmp.Or(cmp.Compare(a.timer.Due, b.timer.Due), cmp.Compare(a.key, b.key))
	})
}

func (c *cursor) isNewest(key string) bool {
	_, ok := slices.BinarySearchFunc(c.newest, key, func(k keyedChange, key string) int { return cmp.Compare(k.key, key) })
	return ok
}

// isChanged reports whether the memtable has a change of the timer.
func (c *cursor) isChanged(key string) bool {
	if _, ok := c.taken.get(key); ok {
		return true
	}
	return c.isNewest(key)
}

// keyedChange is a change with its key.
type keyedChange struct {
	key    string
	change *change
}

// freshTimer is a timer that is newer than the view.
type freshTimer struct {
	key   string
	timer store.Timer
}

// cursor merges the timers of the store with the timers of the memtable, in the
// order of their due times.
type cursor struct {
	ctx    context.Context
	fresh  []freshTimer      // newest and taken, by due time
	newest []keyedChange     // changes that were in no batch, by key
	taken  *Changes          // changes in the batch in flight
	lives  map[string]uint32 // incarnation of each entity that has timers of earlier incarnations
	skip   func(sharding.EntityID, string, int64) bool
	limit  int
	by     int64
	reader uint64
	from   int64 // lower bound of the due times in the store
	first  int64 // due time of the first timer found
	due    []journal.Timer
	keys   strings.Builder // memory for the strings in due; bodies is the memory for the slices
	bodies []byte
	next   int64
	done   bool // next is known, or the rest is not needed

	expected *rows.Expected
	proven   int64 // from this due time on, the number of timers is known
	missing  bool  // timers are missing
	// look, if it is not nil, is called for each timer. It decides whether to
	// use the timer, and whether to stop before it.
	look func(*journal.Timer) (use, stop bool)
}

// Many timers are read long before they are due, and the garbage collector has
// to mark every object. Timers therefore share memory in pieces of cursorPiece
// to cursorPieces bytes.
const (
	cursorPiece  = 256
	cursorPieces = 4 << 10
)

func (c *cursor) keepKey(key []byte) string {
	if b := &c.keys; b.Cap()-b.Len() < len(key) {
		size := max(cursorPiece, len(key), min(2*b.Cap(), cursorPieces))
		c.keys = strings.Builder{}
		c.keys.Grow(size)
	}
	from := c.keys.Len()
	c.keys.Write(key)
	return c.keys.String()[from:]
}

func (c *cursor) keepBody(body []byte) []byte {
	if cap(c.bodies)-len(c.bodies) < len(body) {
		c.bodies = make([]byte, 0, max(cursorPiece, len(body), min(2*cap(c.bodies), cursorPieces)))
	}
	from := len(c.bodies)
	c.bodies = append(c.bodies, body...)
	return c.bodies[from:len(c.bodies):len(c.bodies)]
}

func (c *cursor) addStored(rest, body []byte) error {
	due, key, err := store.CutDue(rest)
	if err != nil {
		return err
	}
	if err := c.addBefore(due, key); err != nil {
		return err
	}
	if c.isChanged(string(key)) {
		return c.ctx.Err()
	}
	t, err := store.DecodeTimer(c.keepBody(body), due)
	if err != nil {
		return err
	}
	return c.add(c.keepKey(key), t)
}

// addBefore adds the memtable's timers before a timer of the store, or all of
// them if key is nil.
func (c *cursor) addBefore(due int64, key []byte) error {
	for len(c.fresh) > 0 {
		f := c.fresh[0]
		if key != nil && (f.timer.Due > due || f.timer.Due == due && f.key > string(key)) {
			return nil
		}
		c.fresh = c.fresh[1:]
		if err := c.add(f.key, cloneTimer(f.timer)); err != nil {
			return err
		}
	}
	return nil
}

func (c *cursor) add(key string, t store.Timer) error {
	timer, err := timerOf(key, &t)
	if err != nil {
		return err
	}
	if c.first = min(c.first, t.Due); t.Due >= c.proven && !c.expected.Add(rows.DueSlot(t.Due)) {
		c.missing, c.done = true, true
		return store.ErrStop
	}
	if c.isOfEarlierLife(key) {
		return c.ctx.Err()
	}
	if c.look != nil {
		if use, stop := c.look(&timer); stop {
			c.done = true
			return store.ErrStop
		} else if !use {
			return c.ctx.Err()
		}
	}
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

// isOfEarlierLife reports whether a timer belongs to an earlier incarnation of
// its entity.
func (c *cursor) isOfEarlierLife(key string) bool {
	if len(c.lives) == 0 {
		return false
	}
	e, life, _, err := store.SplitTimer(key)
	if err != nil {
		return false // the reader has already reported the damage
	}
	now, ok := c.lives[string(store.AppendEntityID(nil, e))]
	return ok && life < now
}
