package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// SendTotals is what a shard has of sends now. It does no I/O.
func (m *Machine) SendTotals(id sharding.ShardID) journal.SendTotals {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sh := m.shards[id]; sh != nil {
		return sh.post.totals
	}
	return journal.SendTotals{}
}

// PendingSends is how many sends of an entity are not acknowledged, as of an
// index of the log.
func (m *Machine) PendingSends(id sharding.ShardID, e sharding.EntityID) (n, asOf uint64, err error) {
	return m.readCount(id, store.AppendEntityID([]byte{byte(store.ClassCount)}, e))
}

// Received is the highest number that an entity has from a source.
func (m *Machine) Received(id sharding.ShardID, e, source sharding.EntityID) (uint64, error) {
	n, _, err := m.readCount(id, store.AppendEntityID(store.AppendEntityID([]byte{byte(store.ClassInbox)}, e), source))
	return n, err
}

func (m *Machine) readCount(id sharding.ShardID, key []byte) (n, asOf uint64, err error) {
	asOf, err = m.readPair(id, key, func(body []byte) (err error) {
		n, err = store.DecodeCount(body)
		return err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("read sends of shard %d: %w", id, err)
	}
	return n, asOf, nil
}

// PairCount is what is counted for a pair of entities in the source's shard.
func (m *Machine) PairCount(id sharding.ShardID, source, to sharding.EntityID) (c journal.PairCount, err error) {
	key := store.AppendEntityID(store.AppendEntityID([]byte{byte(store.ClassCount)}, source), to)
	_, err = m.readPair(id, key, func(body []byte) (err error) {
		c, err = store.DecodePairCount(body)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("read sends of shard %d: %w", id, err)
	}
	return c, nil
}

// readPair calls fn with a pair's value, if there is one, as of an index.
func (m *Machine) readPair(id sharding.ShardID, key []byte, fn func(body []byte) error) (asOf uint64, err error) {
	m.mu.RLock()
	sh := m.shards[id]
	switch {
	case sh == nil:
		m.mu.RUnlock()
		return 0, nil
	case sh.installing != nil:
		m.mu.RUnlock()
		return 0, ErrInstalling
	}
	asOf = sh.applied.Index
	for _, layer := range [...]*postLayer{&sh.post.fresh, &sh.post.taken} {
		if c, ok := layer.pairs[string(key)]; ok {
			m.mu.RUnlock()
			if c.value == nil {
				return asOf, nil
			}
			return asOf, fn(c.value)
		}
	}
	view, err := m.st.ViewAt(m.readAt)
	m.mu.RUnlock()
	if err != nil {
		return 0, err
	}
	defer view.Close()
	_, err = view.Get(append(store.AppendPrefix(nil, id, sh.generation, store.Class(key[0])), key[1:]...), fn)
	return asOf, err
}

// Outbox calls fn for the sends of a shard that are not acknowledged and were
// made after one, in the order they were made; the send is only lent. An error
// of fn ends it and is returned, but for ErrStopReading. It reads the store and
// what was applied since as of one moment.
func (m *Machine) Outbox(ctx context.Context, id sharding.ShardID, after journal.ItemID, fn func(*journal.Send) error) error {
	err := m.readItems(ctx, id, store.ClassOutbox, after, func(at journal.ItemID, body []byte) error {
		s, err := store.DecodeSend(body, at)
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

// Letters calls fn for the dead letters of a shard as Outbox does for its sends.
func (m *Machine) Letters(ctx context.Context, id sharding.ShardID, after journal.ItemID, fn func(*journal.Letter) error) error {
	err := m.readItems(ctx, id, store.ClassLetter, after, func(at journal.ItemID, body []byte) error {
		l, err := store.DecodeLetter(body, at)
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

// Letter returns a dead letter, nil if it is not there; it is the caller's.
func (m *Machine) Letter(id sharding.ShardID, at journal.ItemID) (l *journal.Letter, err error) {
	_, err = m.readPair(id, store.AppendItemID([]byte{byte(store.ClassLetter)}, at), func(body []byte) error {
		got, err := store.DecodeLetter(slices.Clone(body), at)
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

// readItems merges the store with what was applied since: what is in the
// overlay was made later than all that is in the store.
func (m *Machine) readItems(ctx context.Context, id sharding.ShardID, class store.Class, after journal.ItemID,
	fn func(at journal.ItemID, body []byte) error) error {
	from := store.AppendItemID([]byte{byte(class)}, after)
	r, err := m.captureItems(id, class, string(from))
	if r == nil || err != nil {
		return err
	}
	visit := func(rest, body []byte) error {
		at, err := store.DecodeItemID(rest)
		if err == nil {
			err = fn(at, body)
		}
		if err == nil {
			err = ctx.Err()
		}
		return err
	}
	if r.view != nil {
		defer r.view.Close()
		prefix := store.AppendPrefix(nil, id, r.generation, class)
		key := []byte{byte(class)}
		err = r.view.Scan(prefix, append(prefix[:len(prefix):len(prefix)], from[1:]...), func(full, body []byte) error {
			key = append(key[:1], full[len(prefix):]...)
			if _, changed := r.changed[string(key)]; changed || string(key) == string(from) {
				return nil
			}
			return visit(key[1:], body)
		})
	}
	for i := 0; i < len(r.fresh) && err == nil; i++ {
		err = visit([]byte(r.fresh[i].key[1:]), r.fresh[i].value)
	}
	if errors.Is(err, ErrStopReading) {
		return nil
	}
	return err
}

// maxFreshItems bounds what one reading takes from the overlay.
const maxFreshItems = 4096

// itemReading is a moment of a class of items.
type itemReading struct {
	generation uint32
	view       View                // nil where the store has nothing that is asked for
	changed    map[string]struct{} // in the store, and gone since
	fresh      []freshItem
}

type freshItem struct {
	key   string
	value []byte
}

func (m *Machine) captureItems(id sharding.ShardID, class store.Class, from string) (*itemReading, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	sh := m.shards[id]
	if sh == nil {
		return nil, nil
	}
	if sh.installing != nil {
		return nil, ErrInstalling
	}
	if sh.importing() {
		return nil, nil
	}
	r := &itemReading{generation: sh.generation}
	layers := [...]*postLayer{&sh.post.taken, &sh.post.fresh}
	for i, layer := range layers {
		keys := layer.outbox
		if class == store.ClassLetter {
			keys = layer.letters
		}
		n, _ := slices.BinarySearch(keys, from)
		for _, key := range keys[n:] {
			c, ok := layer.pairs[key]
			if newer, gone := sh.post.fresh.pairs[key]; i == 0 && gone {
				c = newer
			}
			if ok && c.value != nil && key > from && len(r.fresh) < maxFreshItems {
				r.fresh = append(r.fresh, freshItem{key, c.value})
			}
		}
	}
	at, _ := store.DecodeItemID([]byte(from[1:]))
	if at.Index > sh.flushed.Index {
		return r, nil
	}
	r.changed = make(map[string]struct{})
	for _, layer := range layers {
		for key, c := range layer.pairs {
			if c.value == nil && store.Class(key[0]) == class {
				r.changed[key] = struct{}{}
			}
		}
	}
	var err error
	r.view, err = m.st.ViewAt(m.readAt)
	return r, err
}
