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

// Source gives readers the timers of shards.
type Source interface {
	// Timers returns what a shard has, nil where there is none or timers have to
	// wait. It holds the lock until Unlock is called, whatever it returns;
	// alone, if this is to be so.
	Timers(id sharding.ShardID, alone bool) *Set
	// Head returns the head of an entity that is in memory.
	Head(id sharding.ShardID, entity string) (h store.Head, ok bool)
	// View is of what is in the store, below the set.
	View() (kv.View, error)
	Unlock(alone bool)
}

// Lists reads the timers of shards, as of one moment each: what is in the
// store, and what was applied since. It may be used from any goroutine.
type Lists struct{ Of Source }

// DueTimers returns the timers of a shard that are due by then, the oldest
// first, at most limit of those that skip does not refuse, and when the next
// one after them is due, math.MaxInt64 for none. The slices are the caller's;
// they share pieces of memory.
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
	err = view.Scan(class, store.AppendDue(class[:len(class):len(class)], c.from), func(key, body []byte) error { return c.stored(key[len(class):], body) })
	if err == nil && !c.done {
		if err = c.rest(math.MaxInt64, nil); errors.Is(err, store.ErrStop) {
			err = nil
		}
	}
	if err != nil && !c.done {
		return nil, 0, fmt.Errorf("read timers of shard %d: %w", id, set.rows.Met(err))
	}
	if !c.done && !c.expected.All() {
		c.missing = true
	}
	if c.missing {
		return nil, 0, fmt.Errorf("read timers of shard %d: %w", id, set.rows.Missing(store.ClassDue))
	}
	l.Of.Timers(id, true)
	defer l.Of.Unlock(true)
	if set.readers == c.reader {
		set.known, set.floor = true, min(c.first, set.lowest)
	}
	return c.due, c.next, nil
}

// layers copies the overlay, and returns the view below it; nothing for a shard
// that has no state.
func (l Lists) layers(id sharding.ShardID, c *cursor) (kv.View, *Set, error) {
	defer l.Of.Unlock(true)
	set := l.Of.Timers(id, true)
	if set == nil {
		return nil, nil, nil
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

// capture takes what is to be read of the overlay: the layer of the batch as it
// is, since it does not change any more, and references to the changes of the
// other. The caller holds the lock.
func (c *cursor) capture(set *Set) {
	c.lives = set.rows.Lives()
	if c.taken = set.taken; set.fresh == nil {
		return
	}
	c.newest = make([]keyed, 0, set.fresh.all.Len())
	for key, t := range set.fresh.all.All {
		c.newest = append(c.newest, keyed{key, t})
	}
}

// arrange puts what was captured in the order of due times, those from one on.
func (c *cursor) arrange(from int64) {
	for _, k := range c.newest {
		if t := k.change; !t.gone() && t.timer.Due >= from {
			c.fresh = append(c.fresh, freshTimer{k.key, t.timer})
		}
	}
	for key, t := range c.taken.from("") {
		if t.gone() || t.timer.Due < from {
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
	_, ok := slices.BinarySearchFunc(c.newest, key, func(k keyed, key string) int { return cmp.Compare(k.key, key) })
	return ok
}

// changed reports that the overlay says what there is of a timer.
func (c *cursor) changed(key string) bool {
	if _, ok := c.taken.get(key); ok {
		return true
	}
	return c.isNewest(key)
}

// keyed is a change with its key.
type keyed struct {
	key    string
	change *change
}

// freshTimer is a timer that is newer than the view.
type freshTimer struct {
	key   string
	timer store.Timer
}

// cursor merges the timers of the store with those of the overlay, in the
// order of their due times.
type cursor struct {
	ctx    context.Context
	fresh  []freshTimer      // newest and taken, by due time
	newest []keyed           // changes that no batch had taken, by key
	taken  *Changes          // those of the batch on its way
	lives  map[string]uint32 // of entities that have timers of earlier lives
	skip   func(sharding.EntityID, string, int64) bool
	limit  int
	by     int64
	reader uint64
	from   int64 // no timer is due before
	first  int64 // the first that was met is due then
	due    []journal.Timer
	keys   strings.Builder // what due's strings are parts of, and bodies its slices
	bodies []byte
	next   int64
	done   bool // next is known, or the rest is not wanted

	expected *rows.Expected
	proven   int64 // of those that are due from then on it is known how many there are
	missing  bool  // timers are
	// look, where there is one, says before others whether a timer is used, and
	// whether the reading ends before it.
	look func(*journal.Timer) (use, stop bool)
}

// Many timers are read long before their turn, and each object is one more for
// the collector to mark: so they share pieces of memory, of cursorPiece at
// first and cursorPieces at most.
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

func (c *cursor) stored(rest, body []byte) error {
	due, key, err := store.CutDue(rest)
	if err != nil {
		return err
	}
	if err := c.rest(due, key); err != nil {
		return err
	}
	if c.changed(string(key)) {
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
func (c *cursor) rest(due int64, key []byte) error {
	for len(c.fresh) > 0 {
		f := c.fresh[0]
		if key != nil && (f.timer.Due > due || f.timer.Due == due && f.key > string(key)) {
			return nil
		}
		c.fresh = c.fresh[1:]
		if err := c.add(f.key, own(f.timer)); err != nil {
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
	if c.first = min(c.first, t.Due); t.Due >= c.proven && !c.expected.Meet(rows.DueSlot(t.Due)) {
		c.missing, c.done = true, true
		return store.ErrStop
	}
	if c.ended(key) {
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

// ended reports that a timer is of an earlier life of its entity.
func (c *cursor) ended(key string) bool {
	if len(c.lives) == 0 {
		return false
	}
	e, life, _, err := store.SplitTimer(key)
	if err != nil {
		return false // its reader has said so
	}
	now, ok := c.lives[string(store.AppendEntityID(nil, e))]
	return ok && life < now
}
