package outbox

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Source gives readers access to the boxes of shards.
type Source interface {
	// Box returns the message state of a shard. It always acquires the lock, even
	// if the shard has no state, and the caller must call Unlock.
	Box(sharding.ShardID) Moment
	// View returns a view of the store, which is below the box.
	View() (kv.View, error)
	Unlock()
}

// Moment is a shard's box at one point in time.
type Moment struct {
	Box       *Box   // nil if the shard has no state
	Err       error  // why nothing can be read, nil if it can
	Applied   uint64 // applied index
	Flushed   uint64 // index up to which the store has the state
	Importing bool   // messages have to wait
}

// Outboxes reads the messages of shards. Each read sees a consistent snapshot
// of the store and the memtable. It is safe for concurrent use.
type Outboxes struct{ From Source }

// MessageTotals returns the current totals of a shard. It does no I/O.
func (r Outboxes) MessageTotals(id sharding.ShardID) journal.MessageTotals {
	defer r.From.Unlock()
	if at := r.From.Box(id); at.Box != nil {
		return at.Box.totals
	}
	return journal.MessageTotals{}
}

// PendingMessages returns the number of an entity's unacknowledged messages,
// and the log index at which the number is right.
func (r Outboxes) PendingMessages(id sharding.ShardID, e sharding.EntityID) (n, asOf uint64, err error) {
	return r.readCount(id, store.AppendEntityID([]byte{byte(store.ClassCount)}, e))
}

// Received returns the highest number that an entity has received from a
// source.
func (r Outboxes) Received(id sharding.ShardID, e, source sharding.EntityID) (uint64, error) {
	n, _, err := r.readCount(id, store.AppendEntityID(store.AppendEntityID([]byte{byte(store.ClassInbox)}, e), source))
	return n, err
}

func (r Outboxes) readCount(id sharding.ShardID, key []byte) (n, asOf uint64, err error) {
	asOf, err = r.readPair(id, key, func(body []byte) (err error) {
		n, err = store.DecodeCount(body)
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("read messages of shard %d: %w", id, err)
	}
	return n, asOf, nil
}

// ChannelCounters returns the counters of a channel in the source's shard.
func (r Outboxes) ChannelCounters(id sharding.ShardID, source, to sharding.EntityID) (c journal.ChannelCounters, err error) {
	key := store.AppendEntityID(store.AppendEntityID([]byte{byte(store.ClassCount)}, source), to)
	_, err = r.readPair(id, key, func(body []byte) (err error) {
		c, err = store.DecodeChannelCounters(body)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("read messages of shard %d: %w", id, err)
	}
	return c, nil
}

// readPair calls fn with a pair's value, if it exists, and returns the index.
func (r Outboxes) readPair(id sharding.ShardID, key []byte, fn func(body []byte) error) (asOf uint64, err error) {
	class := store.Class(key[0])
	var w store.RowHasher
	var l rows.Lookup
	at := r.From.Box(id)
	value, known := at.find(key)
	view, err := kv.View(nil), at.Err
	if !known && at.Box != nil && err == nil {
		l = at.Box.rows.Lookup(&w, class, key[1:])
		view, err = r.From.View()
	}
	r.From.Unlock()
	switch {
	case at.Box == nil || err != nil:
		return 0, err
	case known && value == nil:
		return at.Applied, nil
	case known:
		return at.Applied, fn(value)
	}
	defer view.Close()
	k := at.Box.rows
	found, err := view.Get(append(store.AppendPrefix(nil, id, k.Generation, class), key[1:]...), func(body []byte) error {
		value = append([]byte{}, body...)
		return nil
	})
	if err == nil {
		err = l.CheckRow(&w, view, class, key[1:], value, found)
	}
	if err == nil && found {
		err = fn(value)
	}
	return at.Applied, k.NoteDamage(err)
}

// find returns a pair that is on its way to the store. known reports whether
// such a pair exists; the value is nil if the pair was deleted.
func (m *Moment) find(key []byte) (value []byte, known bool) {
	if m.Box == nil || m.Err != nil {
		return nil, false
	}
	for _, l := range [...]*layer{&m.Box.fresh, &m.Box.taken} {
		if c, ok := l.pairs[string(key)]; ok {
			return c.value, true
		}
	}
	return nil, false
}

// Outbox calls fn, in creation order, for the unacknowledged messages of a
// shard that were created later than the message with the id after. The message
// is only valid during the call. An error of fn ends the read and is returned,
// except ErrStopReading. Outbox reads a consistent snapshot of the store and
// the memtable, or several snapshots if more than maxFreshItems messages are on
// their way to the store.
func (r Outboxes) Outbox(ctx context.Context, id sharding.ShardID, after journal.ItemID, fn func(*journal.Message) error) error {
	err := r.readItems(ctx, id, store.ClassOutbox, after, func(at journal.ItemID, body []byte) error {
		s, err := store.DecodeMessage(body, at)
		if err == nil {
			err = fn(&s)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read the outbox of shard %d: %w", id, err)
	}
	return nil
}

// Message returns an unacknowledged message, nil if it no longer exists. The
// result belongs to the caller.
func (r Outboxes) Message(id sharding.ShardID, at journal.ItemID) (m *journal.Message, err error) {
	_, err = r.readPair(id, store.AppendItemID([]byte{byte(store.ClassOutbox)}, at), func(body []byte) error {
		got, err := store.DecodeMessage(slices.Clone(body), at)
		m = &got
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read a message of shard %d: %w", id, err)
	}
	return m, nil
}

// DeadLetters calls fn for the dead letters of a shard, in the same way as
// Outbox.
func (r Outboxes) DeadLetters(ctx context.Context, id sharding.ShardID, after journal.ItemID, fn func(*journal.DeadLetter) error) error {
	err := r.readItems(ctx, id, store.ClassDeadLetter, after, func(at journal.ItemID, body []byte) error {
		l, err := store.DecodeDeadLetter(body, at)
		if err == nil {
			err = fn(&l)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read the dead letters of shard %d: %w", id, err)
	}
	return nil
}

// DeadLetter returns a dead letter, nil if it does not exist. The result
// belongs to the caller.
func (r Outboxes) DeadLetter(id sharding.ShardID, at journal.ItemID) (l *journal.DeadLetter, err error) {
	_, err = r.readPair(id, store.AppendItemID([]byte{byte(store.ClassDeadLetter)}, at), func(body []byte) error {
		got, err := store.DecodeDeadLetter(slices.Clone(body), at)
		l = &got
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read a dead letter of shard %d: %w", id, err)
	}
	return l, nil
}

// ErrStopReading ends a read without an error.
var ErrStopReading = errors.New("stop reading")

// readItems calls fn for the items of a class that follow the item after. It
// reads in parts, each from a consistent snapshot, and continues after the last
// item of a part.
func (r Outboxes) readItems(ctx context.Context, id sharding.ShardID, class store.Class, after journal.ItemID,
	fn func(at journal.ItemID, body []byte) error) error {
	for {
		items, err := r.capture(id, class, string(store.AppendItemID([]byte{byte(class)}, after)))
		if items == nil || err != nil {
			return err
		}
		err = r.readPart(ctx, id, class, after, items, fn)
		if errors.Is(err, ErrStopReading) {
			return nil
		}
		if err != nil || !items.part {
			return err
		}
		if after, err = store.DecodeItemID([]byte(items.fresh[len(items.fresh)-1].key[1:])); err != nil {
			return err
		}
	}
}

// readPart merges the store with the memtable, whose items are all newer than
// the items in the store. Items from the store are passed on only after all
// items of their entry were found, because a reader that resumes in the middle
// of an entry could not detect a missing item of that entry. Therefore a read
// that resumes in the middle of an entry starts at the beginning of the entry
// and skips the items that were already read.
func (r Outboxes) readPart(ctx context.Context, id sharding.ShardID, class store.Class, after journal.ItemID, items *itemReading,
	fn func(at journal.ItemID, body []byte) error) (err error) {
	met := entryItems{items: items, class: class, after: after, fn: func(at journal.ItemID, body []byte) error {
		if err := fn(at, body); err != nil {
			return err
		}
		return ctx.Err()
	}}
	if items.view != nil {
		defer items.view.Close()
		prefix := store.AppendPrefix(nil, id, items.rows.Generation, class)
		from := store.AppendItemID(prefix[:len(prefix):len(prefix)], journal.ItemID{Index: after.Index})
		key := []byte{byte(class)}
		err = items.view.Scan(prefix, from, func(full, body []byte) error {
			key = append(key[:1], full[len(prefix):]...)
			if _, changed := items.changed[string(key)]; changed {
				return nil
			}
			return met.addStored(key[1:], body)
		})
	}
	for i := 0; i < len(items.fresh) && err == nil; i++ {
		err = met.addFresh([]byte(items.fresh[i].key[1:]), items.fresh[i].value)
	}
	if err == nil && !items.part && !items.expected.IsPast(math.MaxInt64) {
		err = items.rows.ReportMissing(class)
	}
	if err == nil {
		err = met.handOut()
	}
	return err
}

// entryItems collects the items of one entry from the store until all of them
// are found.
type entryItems struct {
	items   *itemReading
	class   store.Class
	after   journal.ItemID
	fn      func(at journal.ItemID, body []byte) error
	waiting []foundItem
}

type foundItem struct {
	at   journal.ItemID
	body []byte
}

// addStored adds an item from the store; the body is only valid during the
// call.
func (e *entryItems) addStored(rest, body []byte) error {
	at, err := e.count(rest)
	if err == nil && e.after.Less(at) {
		e.waiting = append(e.waiting, foundItem{at, slices.Clone(body)})
	}
	return err
}

// addFresh adds an item from the memtable, where nothing can be missing.
func (e *entryItems) addFresh(rest, body []byte) error {
	at, err := e.count(rest)
	if err == nil && e.after.Less(at) {
		err = e.fn(at, body)
	}
	return err
}

// count counts an item, and passes on the items of the previous entry.
func (e *entryItems) count(rest []byte) (at journal.ItemID, err error) {
	if at, err = store.DecodeItemID(rest); err != nil {
		return at, err
	}
	if !e.items.expected.Add(int64(at.Index)) {
		return at, e.items.rows.ReportMissing(e.class)
	}
	if len(e.waiting) > 0 && e.waiting[0].at.Index != at.Index {
		err = e.handOut()
	}
	return at, err
}

func (e *entryItems) handOut() error {
	all := e.waiting
	e.waiting = e.waiting[:0]
	for i := range all {
		if err := e.fn(all[i].at, all[i].body); err != nil {
			return err
		}
	}
	return nil
}

// maxFreshItems limits what one part of a read takes from the memtable.
const maxFreshItems = 4096

// itemReading reads the items of one class at one point in time.
type itemReading struct {
	rows     *rows.Known
	expected *rows.Expected
	part     bool                // the memtable has more items
	view     kv.View             // nil if the store has none of the requested items
	changed  map[string]struct{} // in the store, but deleted since
	fresh    []freshItem
}

// freshItem is a row that is newer than the view.
type freshItem struct {
	key   string
	value []byte
}

func (r Outboxes) capture(id sharding.ShardID, class store.Class, from string) (*itemReading, error) {
	defer r.From.Unlock()
	now := r.From.Box(id)
	if now.Box == nil || now.Err != nil || now.Importing {
		return nil, now.Err
	}
	at, _ := store.DecodeItemID([]byte(from[1:]))
	items := now.Box.items(class, from, at)
	if at.Index > now.Flushed {
		return items, nil
	}
	items.changed = now.Box.deletedPairs(class)
	var err error
	items.view, err = r.From.View()
	return items, err
}

// items returns the memtable's items, starting with the entry of a key. Items
// of that entry up to the key are included, but only counted.
func (b *Box) items(class store.Class, from string, at journal.ItemID) *itemReading {
	items := &itemReading{rows: b.rows, expected: b.rows.ExpectItems(class, int64(min(at.Index, math.MaxInt64)), math.MaxInt64)}
	entry := string(store.AppendItemID([]byte{byte(class)}, journal.ItemID{Index: at.Index}))
	behind := 0
	for i, layer := range [...]*layer{&b.taken, &b.fresh} {
		keys := layer.outbox
		if class == store.ClassDeadLetter {
			keys = layer.deadLetters
		}
		n, _ := slices.BinarySearch(keys, entry)
		for _, key := range keys[n:] {
			c, ok := layer.pairs[key]
			if newer, gone := b.fresh.pairs[key]; i == 0 && gone {
				c = newer
			}
			if items.part = behind == maxFreshItems; items.part {
				break
			}
			if !ok || c.value == nil {
				continue
			}
			items.fresh = append(items.fresh, freshItem{key, c.value})
			if key > from {
				behind++
			}
		}
	}
	return items
}

// deletedPairs returns the pairs of a class that the memtable deletes.
func (b *Box) deletedPairs(class store.Class) map[string]struct{} {
	gone := make(map[string]struct{})
	for _, layer := range [...]*layer{&b.taken, &b.fresh} {
		for key, c := range layer.pairs {
			if c.value == nil && store.Class(key[0]) == class {
				gone[key] = struct{}{}
			}
		}
	}
	return gone
}
