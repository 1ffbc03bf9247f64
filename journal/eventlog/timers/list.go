package timers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// TimersOf returns up to limit timers of an entity, in the order of their due
// times. It reads no data of other entities. The slices belong to the caller.
func (l Lists) TimersOf(ctx context.Context, id sharding.ShardID, e sharding.EntityID, limit int) ([]journal.Timer, error) {
	r, err := l.reading(id, string(store.AppendEntityID(nil, e)))
	if r.known == nil || err != nil {
		return nil, inShard(id, r.known, err)
	}
	defer r.view.Close()
	places, err := r.places(ctx)
	if err != nil {
		return nil, inShard(id, r.known, err)
	}
	slices.SortFunc(places, Place.compare)
	timers := make([]journal.Timer, 0, min(limit, len(places)))
	for _, p := range places[:min(limit, len(places))] {
		timer, err := r.timer(p)
		if err != nil {
			return nil, inShard(id, r.known, err)
		}
		timers = append(timers, timer)
	}
	return timers, nil
}

// inShard adds the shard to an error. If the error is damage, it also requests
// that the shard is stopped.
func inShard(id sharding.ShardID, known *rows.Known, err error) error {
	if err == nil {
		return nil
	}
	if known != nil {
		err = known.NoteDamage(err)
	}
	return fmt.Errorf("read timers of shard %d: %w", id, err)
}

// reading has the timers of an entity at one point in time: the memtable's
// part, the entity's row if it is in memory, and the view of the store below.
type reading struct {
	entity  string
	known   *rows.Known // nil if the shard has no state
	head    *store.Head
	look    rows.Lookup // used if the row is not in memory
	changed map[string]*change
	view    kv.View
}

func (l Lists) reading(id sharding.ShardID, entity string) (r reading, err error) {
	defer l.Of.Unlock(false)
	set, err := l.Of.Timers(id, false)
	if set == nil {
		return r, err
	}
	r = reading{entity: entity, known: set.rows, changed: make(map[string]*change)}
	for _, layer := range [...]*Changes{set.taken, set.fresh} { // the newer layer last
		for key, t := range layer.from(entity) {
			if !strings.HasPrefix(key, entity) {
				break
			}
			r.changed[key] = t
		}
	}
	if h, ok := l.Of.Head(id, entity); ok {
		r.head = &h
	} else {
		r.look = set.rows.Lookup(&store.RowHasher{}, store.ClassEntity, []byte(entity))
	}
	r.view, err = l.Of.View()
	return r, err
}

// places returns the places of all timers of the entity.
func (r *reading) places(ctx context.Context) (places []Place, err error) {
	if r.head == nil {
		h, _, err := r.look.ReadHead(&store.RowHasher{}, r.view, []byte(r.entity))
		if err != nil {
			return nil, err
		}
		r.head = &h
	}
	for key, t := range r.changed {
		if life, _, err := store.CutLife(key[len(r.entity):]); err != nil {
			return nil, err
		} else if life == r.head.Life && !t.isCancelled() {
			places = append(places, Place{t.timer.Due, key})
		}
	}
	err = Each(r.view, r.known, r.entity, r.head, func(p Place) error {
		if _, newer := r.changed[p.Key]; !newer {
			places = append(places, p)
		}
		return ctx.Err()
	})
	if err == nil && len(places) != int(r.head.Timers) {
		err = missing(len(places), r.head.Timers)
	}
	return places, err
}

func (r *reading) timer(p Place) (journal.Timer, error) {
	if c := r.changed[p.Key]; c != nil {
		t := cloneTimer(c.timer)
		return timerOf(p.Key, &t)
	}
	t, err := Read(r.view, r.known, p)
	if err != nil {
		return journal.Timer{}, err
	}
	return timerOf(p.Key, &t)
}
