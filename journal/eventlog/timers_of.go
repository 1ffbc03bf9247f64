package eventlog

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// TimersOf returns the timers of an entity, at most limit of them, those that
// are due first before the others. It reads the store and what was applied
// since as of one moment, and nothing of other entities. The slices are the
// caller's.
func (m *Machine) TimersOf(ctx context.Context, id sharding.ShardID, e sharding.EntityID, limit int) ([]journal.Timer, error) {
	timers, err := m.timersOf(ctx, id, string(store.AppendEntityID(nil, e)), limit)
	if err != nil {
		return nil, fmt.Errorf("read timers of shard %d: %w", id, err)
	}
	return timers, nil
}

func (m *Machine) timersOf(ctx context.Context, id sharding.ShardID, entity string, limit int) ([]journal.Timer, error) {
	view, generation, h, changed, err := m.changedTimers(id, entity)
	if view == nil || err != nil {
		return nil, err
	}
	defer view.Close()
	if h == nil {
		stored, _, err := readHead(view, id, generation, []byte(entity))
		if err != nil {
			return nil, err
		}
		h = &stored
	}
	var places []timerPlace
	for key, t := range changed {
		if !t.gone() {
			places = append(places, timerPlace{t.timer.Due, key})
		}
	}
	err = eachTimer(view, id, generation, entity, h, func(t timerPlace) error {
		if _, newer := changed[t.key]; !newer {
			places = append(places, t)
		}
		return ctx.Err()
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(places, timerPlace.compare)
	timers := make([]journal.Timer, 0, min(limit, len(places)))
	for _, p := range places[:min(limit, len(places))] {
		t := ownTimer(changed[p.key].timer)
		if len(t.Command) == 0 {
			if t, err = readTimer(view, id, generation, p); err != nil {
				return nil, err
			}
		}
		timer, err := timerOf(p.key, &t)
		if err != nil {
			return nil, err
		}
		timers = append(timers, timer)
	}
	return timers, nil
}

// changedTimers copies what the overlay has of an entity's timers, and its head
// if that is in memory, and returns the view below it; none for a shard that has
// no state.
func (m *Machine) changedTimers(id sharding.ShardID, entity string) (view View, generation uint32, h *store.Head, changed map[string]timerChange, err error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	sh := m.shards[id]
	if sh == nil || sh.importing() {
		return nil, 0, nil, nil, nil
	}
	changed = make(map[string]timerChange)
	for _, layer := range [...]map[string]timerChange{sh.timers.taken, sh.timers.fresh} { // the newer one last
		for key, t := range layer {
			if strings.HasPrefix(key, entity) {
				changed[key] = t
			}
		}
	}
	if in := sh.heads[entity]; in != nil {
		head := in.Head
		h = &head
	}
	view, err = m.st.ViewAt(m.readAt)
	return view, sh.generation, h, changed, err
}

// timerPlace is where a timer stands among those of its shard.
type timerPlace struct {
	due int64
	key string
}

func (p timerPlace) compare(q timerPlace) int {
	return cmp.Or(cmp.Compare(p.due, q.due), cmp.Compare(p.key, q.key))
}

// eachTimer calls fn for the timers of an entity that a head of it holds, and
// for those beside it in the store.
func eachTimer(view View, id sharding.ShardID, generation uint32, entity string, h *store.Head, fn func(timerPlace) error) error {
	for name, due := range h.Set.All {
		if err := fn(timerPlace{due, entity + name}); err != nil {
			return err
		}
	}
	if !h.TimerRows() {
		return nil
	}
	return eachTimerRow(view, id, generation, entity, fn)
}

// eachTimerRow calls fn for the timers of an entity that no head holds.
func eachTimerRow(view View, id sharding.ShardID, generation uint32, entity string, fn func(timerPlace) error) error {
	class := store.AppendPrefix(nil, id, generation, store.ClassTimer)
	return view.Scan(append(class[:len(class):len(class)], entity...), nil, func(key, body []byte) error {
		due, err := store.DecodeDue(body)
		if err != nil {
			return err
		}
		return fn(timerPlace{due, string(key[len(class):])})
	})
}

func readTimer(view View, id sharding.ShardID, generation uint32, p timerPlace) (t store.Timer, err error) {
	key := append(store.AppendDue(store.AppendPrefix(nil, id, generation, store.ClassDue), p.due), p.key...)
	found, err := view.Get(key, func(body []byte) (err error) {
		t, err = store.DecodeTimer(bytes.Clone(body), p.due)
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("%w: a timer is not under its due time", journal.ErrDamaged)
	}
	return t, err
}

// ownTimer is a timer with copies of its slices.
func ownTimer(t store.Timer) store.Timer {
	return store.Timer{Due: t.Due, Command: bytes.Clone(t.Command), Payload: bytes.Clone(t.Payload), Schedule: bytes.Clone(t.Schedule)}
}

// timerOf is a timer as others see it, made of parts of key and t.
func timerOf(key string, t *store.Timer) (journal.Timer, error) {
	e, name, err := store.SplitEntity(key)
	if err != nil {
		return journal.Timer{}, err
	}
	timer := journal.Timer{Entity: e, Name: name, Due: t.Due, Command: t.Command, Payload: t.Payload}
	if len(t.Schedule) > 0 {
		timer.Schedule, err = journal.DecodeSchedule(t.Schedule)
	}
	return timer, err
}
