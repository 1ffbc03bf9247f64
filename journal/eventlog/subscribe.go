package eventlog

import (
	"errors"
	"slices"
	"sync"

	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// ErrTooManySubscribers: MaxSubscribers are subscribed. Retry later.
var ErrTooManySubscribers = errors.New("too many subscribers")

// subscriptions are who waits for records, by entity and by shard.
type subscriptions struct {
	mu   sync.Mutex
	max  int
	n    int
	by   map[subject][]*subscriber
	wake []*subscriber // of the applying goroutine
}

type subject struct {
	shard  sharding.ShardID
	entity string // as keys hold it; empty is the whole shard
}

// subscriber has room for one wake-up: more would say nothing new.
type subscriber struct{ wake chan struct{} }

// Subscribe returns a channel that receives after records of the entity were
// applied; several may share one receive. A reader that subscribes, then
// reads, then receives misses nothing. cancel ends it and may be called more
// than once; the channel is never closed.
func (m *Machine) Subscribe(id sharding.ShardID, e sharding.EntityID) (wake <-chan struct{}, cancel func(), err error) {
	s := &subscriber{wake: make(chan struct{}, 1)}
	to := []subject{{id, string(store.AppendEntityID(nil, e))}}
	if err := m.subs.add(to, s); err != nil {
		return nil, nil, err
	}
	return s.wake, func() { m.subs.remove(to, s) }, nil
}

// SubscribeOrder is Subscribe for the records of all entities of some shards,
// each given once. It counts as one subscriber.
func (m *Machine) SubscribeOrder(shards []sharding.ShardID) (wake <-chan struct{}, cancel func(), err error) {
	s := &subscriber{wake: make(chan struct{}, 1)}
	to := make([]subject, len(shards))
	for i, id := range shards {
		to[i].shard = id
	}
	if err := m.subs.add(to, s); err != nil {
		return nil, nil, err
	}
	return s.wake, func() { m.subs.remove(to, s) }, nil
}

func (t *subscriptions) add(to []subject, s *subscriber) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n >= t.max {
		return ErrTooManySubscribers
	}
	if t.by == nil {
		t.by = make(map[subject][]*subscriber)
	}
	for _, to := range to {
		t.by[to] = append(t.by[to], s)
	}
	if len(to) > 0 {
		t.n++
	}
	return nil
}

func (t *subscriptions) remove(all []subject, s *subscriber) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found := false
	for _, to := range all {
		i := slices.Index(t.by[to], s)
		if i < 0 {
			continue
		}
		found = true
		t.by[to] = slices.Delete(t.by[to], i, i+1)
		if len(t.by[to]) == 0 {
			delete(t.by, to)
		}
	}
	if found {
		t.n--
	}
}

// notify wakes the subscribers of the records' entities and of their shard.
func (t *subscriptions) notify(id sharding.ShardID, records []judged) {
	t.collect(id, records)
	for i, s := range t.wake {
		select {
		case s.wake <- struct{}{}:
		default:
		}
		t.wake[i] = nil
	}
	t.wake = t.wake[:0]
}

// wakeShard wakes the subscribers of all entities of a shard.
func (t *subscriptions) wakeShard(id sharding.ShardID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for to, subs := range t.by {
		if to.shard != id {
			continue
		}
		for _, s := range subs {
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}
	}
}

func (t *subscriptions) collect(id sharding.ShardID, records []judged) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == 0 {
		return
	}
	for i := range records {
		t.wake = append(t.wake, t.by[subject{id, records[i].head.key}]...)
	}
	if len(records) > 0 {
		t.wake = append(t.wake, t.by[subject{shard: id}]...)
	}
}
