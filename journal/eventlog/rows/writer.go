package rows

import "github.com/hostd/hostd/journal/store"

// Writer updates the Known of a shard as its rows change. It is used by the
// applying goroutine, which holds the lock.
type Writer struct {
	store.RowHasher
	key, rest []byte // scratch
}

// Place returns the hash that identifies a row in a shard's set.
func (w *Writer) Place(k *Known, class store.Class, rest string) uint64 {
	w.key = append(w.key[:0], rest...)
	return k.place(&w.RowHasher, class, w.key)
}

// Meta records a change of a metadata pair; a nil value deletes it.
func (w *Writer) Meta(k *Known, key, value []byte) {
	old, had := k.meta[string(key)]
	now, has := store.RowHash{}, value != nil
	if has {
		now = w.Row(store.ClassMeta, key, value)
	}
	if has && k.meta == nil {
		k.meta = make(map[string]store.RowHash)
	}
	if has {
		k.meta[string(key)] = now
	} else {
		delete(k.meta, string(key))
	}
	k.changeSum(store.SumMeta, old, had, now, has)
}

// Pair records a change of an outbox or inbox pair, keyed by class and the rest
// of the key. was is the pair's previous hash, if it existed, and value is its
// new value, nil if it is deleted.
func (w *Writer) Pair(k *Known, key string, was store.RowHash, had bool, value []byte) {
	w.key = append(w.key[:0], key...)
	row := store.Key{Class: store.Class(key[0]), Suffix: w.key[1:]}
	group, ok := store.SumOf(row)
	if !ok {
		return
	}
	now, has := store.RowHash{}, value != nil
	if has {
		now = w.Row(row.Class, row.Suffix, value)
	}
	k.Replace(group, k.place(&w.RowHasher, row.Class, row.Suffix), was, had, now, has)
	if t := k.tally(row.Class); t != nil && had != has {
		t.change(itemSlot(row.Suffix), has)
	}
}

// Timer records a change of a timer: how it was stored before and how it is
// stored now.
func (w *Writer) Timer(k *Known, key string, was, now Timer) {
	w.key = append(w.key[:0], key...)
	if was.set {
		k.dues.change(DueSlot(was.due), false)
	}
	if now.set {
		k.dues.change(DueSlot(now.due), true)
	}
	if was != now {
		k.changeSum(store.SumDue, w.due(was, key), was.set, w.due(now, key), now.set)
	}
	if was.row || now.row {
		k.Replace(store.SumTimers, k.place(&w.RowHasher, store.ClassTimer, w.key), w.timer(was), was.row, w.timer(now), now.row)
	}
}

// Timer describes how a timer is stored.
type Timer struct {
	due int64
	set bool
	row bool // the timer has a row of class store.ClassTimer
}

// TimerOf returns how a timer is stored, if set, either in the entity's row or
// in a row of its own.
func TimerOf(due int64, set, inHead bool) Timer {
	if !set {
		return Timer{}
	}
	return Timer{due: due, set: true, row: !inHead}
}

func (w *Writer) due(t Timer, key string) store.RowHash {
	if !t.set {
		return store.RowHash{}
	}
	w.rest = append(store.AppendDue(w.rest[:0], t.due), key...)
	return w.Row(store.ClassDue, w.rest, nil)
}

// timer returns the hash of the timer row with key w.key.
func (w *Writer) timer(t Timer) store.RowHash {
	if !t.row {
		return store.RowHash{}
	}
	w.rest = store.AppendDue(w.rest[:0], t.due)
	return w.Row(store.ClassTimer, w.key, w.rest)
}
