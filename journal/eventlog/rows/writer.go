package rows

import "github.com/hostd/hostd/journal/store"

// Writer keeps what is known of shards as rows of theirs change. It serves the
// goroutine that applies, which holds the lock.
type Writer struct {
	store.RowHasher
	key, rest []byte // scratch
}

// Place is that of a row in a shard's set.
func (w *Writer) Place(k *Known, class store.Class, rest string) uint64 {
	w.key = append(w.key[:0], rest...)
	return k.Place(&w.RowHasher, class, w.key)
}

// Meta takes in a pair of the metadata machine; nil is none.
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

// Pair takes in a pair of the outbox or the inbox, under its class and the rest
// of its key: what it was before, if it had been there, and its value, nil where
// it is gone.
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
	k.Replace(group, k.Place(&w.RowHasher, row.Class, row.Suffix), was, had, now, has)
	if t := k.tally(row.Class); t != nil && had != has {
		t.change(itemSlot(row.Suffix), has)
	}
}

// Timer takes in a change of a timer: how it was stored, and how it is now.
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
		k.Replace(store.SumTimers, k.Place(&w.RowHasher, store.ClassTimer, w.key), w.timer(was), was.row, w.timer(now), now.row)
	}
}

// Timer is how a timer is stored.
type Timer struct {
	due int64
	set bool
	row bool // it is under store.ClassTimer
}

// TimerOf is a timer that is set, or not, and held by its head, or not.
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

// timer is for the timer in w.key.
func (w *Writer) timer(t Timer) store.RowHash {
	if !t.row {
		return store.RowHash{}
	}
	w.rest = store.AppendDue(w.rest[:0], t.due)
	return w.Row(store.ClassTimer, w.key, w.rest)
}
