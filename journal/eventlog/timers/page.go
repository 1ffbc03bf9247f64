package timers

import (
	"context"
	"errors"
	"math"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// PlaceOf returns the place of a timer, which depends only on its due time,
// entity and name. Stored keys that include an incarnation sort in the same
// order.
func PlaceOf(t *journal.Timer) Place {
	return Place{t.Due, string(store.AppendEntityID(nil, t.Entity)) + t.Name}
}

// Before reports whether p comes before q: it is due earlier, or at the same
// time with a smaller key.
func (p Place) Before(q Place) bool { return p.compare(q) < 0 }

// Query selects timers of a shard.
type Query struct {
	After *Place // only timers after this place; nil means all
	By    int64  // only timers due at this time or earlier
	Type  string // only timers of entities of this type; empty means all
	Limit int    // maximum number of timers, at least 1
	Scan  int    // maximum number of timers to examine, at least Limit
}

// Page is a part of a shard's timers in the order of their due times. The
// slices belong to the caller.
type Page struct {
	Timers []journal.Timer
	// More says that the page ended at Last and that there may be more timers.
	More bool
	Last Place
}

// TimerPage returns timers of a shard for display. Unlike DueTimers it may
// start anywhere and keeps no state.
func (l Lists) TimerPage(ctx context.Context, id sharding.ShardID, q Query) (p Page, err error) {
	c := cursor{by: math.MaxInt64, limit: math.MaxInt, next: math.MaxInt64, first: math.MaxInt64, proven: math.MinInt64, from: math.MinInt64, ctx: ctx}
	if q.After != nil {
		// The scan starts within a slot and finds only some of that slot's timers.
		c.from, c.proven = q.After.Due, (rows.DueSlot(q.After.Due)+1)<<dueSlotBits
	}
	scanned := 0
	c.look = func(t *journal.Timer) (use, stop bool) {
		at := PlaceOf(t)
		switch {
		case q.After != nil && !q.After.Before(at):
			return false, false
		case at.Due > q.By:
			return false, true
		case len(c.due) == q.Limit || scanned == q.Scan:
			p.More = true
			return false, true
		}
		scanned++
		p.Last = at
		return q.Type == "" || q.Type == t.Entity.Type, false
	}
	view, known, err := l.snapshot(id, &c)
	if known == nil || err != nil {
		return Page{}, inShard(id, known, err)
	}
	defer view.Close()
	c.arrange(c.from)
	class := store.AppendPrefix(nil, id, known.Generation, store.ClassDue)
	start := store.AppendDue(class[:len(class):len(class)], c.from)
	if q.After != nil {
		// The scan must not start at the name, because keys may have the entity's
		// incarnation before the name.
		start = append(start, entityOf(q.After.Key)...)
	}
	err = view.Scan(class, start, func(key, body []byte) error { return c.addStored(key[len(class):], body) })
	if err == nil && !c.done {
		err = c.addBefore(math.MaxInt64, nil)
	}
	if errors.Is(err, store.ErrStop) {
		err = nil
	}
	if c.missing || err == nil && !c.done && !c.expected.IsPast(math.MaxInt64) {
		err = known.ReportMissing(store.ClassDue)
	}
	if err != nil {
		return Page{}, inShard(id, known, err)
	}
	p.Timers = c.due
	return p, nil
}

// entityOf returns the part of a timer's key that names its entity, or the
// whole key if it names none.
func entityOf(key string) string {
	_, rest, err := store.SplitEntity(key)
	if err != nil {
		return key
	}
	return key[:len(key)-len(rest)]
}

// dueSlotBits is the number of bits of rows.DueSlot.
const dueSlotBits = 36

// snapshot copies the memtable and returns the view of the store below it.
// Known is nil if the shard has no state.
func (l Lists) snapshot(id sharding.ShardID, c *cursor) (kv.View, *rows.Known, error) {
	defer l.Of.Unlock(false)
	set, err := l.Of.Timers(id, false)
	if set == nil {
		return nil, nil, err
	}
	c.expected = set.rows.ExpectDue(max(c.from, c.proven), math.MaxInt64)
	c.capture(set)
	view, err := l.Of.View()
	return view, set.rows, err
}
