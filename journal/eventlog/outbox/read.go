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

// Source gives readers the boxes of shards.
type Source interface {
	// Box returns what a shard has, and holds the lock until Unlock is called,
	// whatever it returns.
	Box(sharding.ShardID) Moment
	// View is of what is in the store, below the box.
	View() (kv.View, error)
	Unlock()
}

// Moment is a shard's box at one moment.
type Moment struct {
	Box       *Box   // nil: the shard has no state
	Err       error  // why nothing can be read, nil if it can
	Applied   uint64 // index
	Flushed   uint64 // of it, what is in the store
	Importing bool   // messages have to wait
}

// Outboxes reads what shards have of messages, as of one moment each: what is
// in the store, and what was applied since. It may be used from any goroutine.
type Outboxes struct{ From Source }

// MessageTotals is what a shard has of messages now. It does no I/O.
func (r Outboxes) MessageTotals(id sharding.ShardID) journal.MessageTotals {
	defer r.From.Unlock()
	if at := r.From.Box(id); at.Box != nil {
		return at.Box.totals
	}
	return journal.MessageTotals{}
}

// PendingMessages is how many messages of an entity are not acknowledged, as of
// an index of the log.
func (r Outboxes) PendingMessages(id sharding.ShardID, e sharding.EntityID) (n, asOf uint64, err error) {
	return r.readCount(id, store.AppendEntityID([]byte{byte(store.ClassCount)}, e))
}

// Received is the highest number that an entity has from a source.
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
		return 0, 0, fmt.Errorf("read sends of shard %d: %w", id, err)
	}
	return n, asOf, nil
}

// PairCount is what is counted for a pair of entities in the source's shard.
func (r Outboxes) PairCount(id sharding.ShardID, source, to sharding.EntityID) (c journal.PairCount, err error) {
	key := store.AppendEntityID(store.AppendEntityID([]byte{byte(store.ClassCount)}, source), to)
	_, err = r.readPair(id, key, func(body []byte) (err error) {
		c, err = store.DecodePairCount(body)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("read sends of shard %d: %w", id, err)
	}
	return c, nil
}

// readPair calls fn with a pair's value, if there is one, as of an index.
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
		err = l.Row(&w, view, class, key[1:], value, found)
	}
	if err == nil && found {
		err = fn(value)
	}
	return at.Applied, k.Met(err)
}

// find returns a pair that is on its way to the store; known if it is, without
// a value if it is gone.
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

// Outbox calls fn for the messages of a shard that are not acknowledged and
// were made after one, in the order they were made; the message is only lent.
// An error of fn ends it and is returned, but for ErrStopReading. It reads the
// store and what was applied since as of one moment, or of several where more
// than maxFreshItems are on their way to the store.
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

// Message returns a message that is not acknowledged, nil if it is not there any
// more; it is the caller's.
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

// DeadLetters calls fn for the dead letters of a shard as Outbox does for its
// messages.
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

// DeadLetter returns a dead letter, nil if it is not there; it is the caller's.
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

// ErrStopReading ends a reading without an error.
var ErrStopReading = errors.New("stop reading")

// readItems calls fn for the items of a class after one. It reads in parts, each
// as of one moment, and goes on after the last item of a part.
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

// readPart merges the store with what was applied since: what is in the
// overlay was made later than all that is in the store. Of the store, the items
// of an entry are handed out once all of them were met: which of them may be
// missing nobody could tell who reads on behind one of them. So a reading that
// begins there begins with the entry, and passes over what was read before.
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
			return met.store(key[1:], body)
		})
	}
	for i := 0; i < len(items.fresh) && err == nil; i++ {
		err = met.fresh([]byte(items.fresh[i].key[1:]), items.fresh[i].value)
	}
	if err == nil && !items.part && !items.expected.Passed(math.MaxInt64) {
		err = items.rows.Missing(class)
	}
	if err == nil {
		err = met.handOut()
	}
	return err
}

// entryItems are the items of one entry that were met in the store and are
// handed out when all of them were.
type entryItems struct {
	items   *itemReading
	class   store.Class
	after   journal.ItemID
	fn      func(at journal.ItemID, body []byte) error
	waiting []metItem
}

type metItem struct {
	at   journal.ItemID
	body []byte
}

// store takes an item of the store; the body is lent.
func (e *entryItems) store(rest, body []byte) error {
	at, err := e.meet(rest)
	if err == nil && e.after.Less(at) {
		e.waiting = append(e.waiting, metItem{at, slices.Clone(body)})
	}
	return err
}

// fresh takes an item of the overlay, in which nothing is missing.
func (e *entryItems) fresh(rest, body []byte) error {
	at, err := e.meet(rest)
	if err == nil && e.after.Less(at) {
		err = e.fn(at, body)
	}
	return err
}

// meet counts an item, and hands out those of the entry before it.
func (e *entryItems) meet(rest []byte) (at journal.ItemID, err error) {
	if at, err = store.DecodeItemID(rest); err != nil {
		return at, err
	}
	if !e.items.expected.Meet(int64(at.Index)) {
		return at, e.items.rows.Missing(e.class)
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

// maxFreshItems bounds what one part of a reading takes from the overlay.
const maxFreshItems = 4096

// itemReading is a moment of a class of items.
type itemReading struct {
	rows     *rows.Known
	expected *rows.Expected
	part     bool                // there is more in the overlay
	view     kv.View             // nil where the store has nothing that is asked for
	changed  map[string]struct{} // in the store, and gone since
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
	items.changed = now.Box.gone(class)
	var err error
	items.view, err = r.From.View()
	return items, err
}

// items takes what the overlay has from the entry of a key on; what of it is
// not behind the key is there to be counted.
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

// gone are the pairs of a class that the overlay takes away.
func (b *Box) gone(class store.Class) map[string]struct{} {
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
