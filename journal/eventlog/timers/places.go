package timers

import (
	"bytes"
	"cmp"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
)

// Place is the place of a timer in the order of its shard's timers.
type Place struct {
	Due int64
	Key string // entity and name; in stored keys also the incarnation between them
}

func (p Place) compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Due, q.Due), cmp.Compare(p.Key, q.Key))
}

// Each calls fn for the timers in an entity's row and for its timer rows in the
// store.
func Each(view kv.View, k *rows.Known, entity string, h *store.Head, fn func(Place) error) error {
	life := string(store.AppendLife([]byte(entity), h.Life))
	for name, due := range h.Set.All {
		if err := fn(Place{due, life + name}); err != nil {
			return err
		}
	}
	if !h.TimerRows() {
		return nil
	}
	return eachRow(view, k, life, fn)
}

// eachRow calls fn for the timer rows of one incarnation of an entity.
func eachRow(view kv.View, k *rows.Known, life string, fn func(Place) error) error {
	class := store.AppendPrefix(nil, k.Shard, k.Generation, store.ClassTimer)
	return view.Scan(append(class[:len(class):len(class)], life...), nil, func(key, body []byte) error {
		due, err := store.DecodeDue(body)
		if err != nil {
			return err
		}
		return fn(Place{due, string(key[len(class):])})
	})
}

// Read reads the timer at a place.
func Read(view kv.View, k *rows.Known, p Place) (t store.Timer, err error) {
	key := append(store.AppendDue(store.AppendPrefix(nil, k.Shard, k.Generation, store.ClassDue), p.Due), p.Key...)
	found, err := view.Get(key, func(body []byte) (err error) {
		t, err = store.DecodeTimer(bytes.Clone(body), p.Due)
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: a timer is stored under a wrong due time", journal.ErrDamaged)
	}
	return t, err
}

// cloneTimer returns a copy of the timer with its own slices.
func cloneTimer(t store.Timer) store.Timer {
	return store.Timer{Due: t.Due, Command: bytes.Clone(t.Command), Payload: bytes.Clone(t.Payload), Schedule: bytes.Clone(t.Schedule), Trace: t.Trace}
}

// timerOf converts a timer to its public form, which shares memory with key and
// t.
func timerOf(key string, t *store.Timer) (journal.Timer, error) {
	e, _, name, err := store.SplitTimer(key)
	if err != nil {
		return journal.Timer{}, err
	}
	timer := journal.Timer{Entity: e, Name: name, Due: t.Due, Command: t.Command, Payload: t.Payload, Trace: t.Trace}
	if len(t.Schedule) > 0 {
		timer.Schedule, err = journal.DecodeSchedule(t.Schedule)
	}
	return timer, err
}
