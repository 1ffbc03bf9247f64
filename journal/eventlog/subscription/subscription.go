// Package subscription wakes those who wait for records of an entity or of a
// shard. It says that there is something new and never what: the records are
// read elsewhere. It has no goroutine.
package subscription

import (
	"errors"
	"slices"
	"sync"

	"github.com/hostd/hostd/sharding"
)

// ErrTooMany: Max are subscribed. Retry later.
var ErrTooMany = errors.New("too many subscribers")

// Table is who waits for records, by entity and by shard. Applied belongs
// to the goroutine that applies; the other methods may be called from any.
type Table struct {
	Max int // how many may be subscribed; set before use

	mu   sync.Mutex
	n    int
	by   map[Subject][]*subscriber
	wake []*subscriber // of the applying goroutine
}

// Subject is what a subscriber waits for records of.
type Subject struct {
	Shard  sharding.ShardID
	Entity string // as keys hold it; empty is the whole shard
}

// subscriber has room for one wake-up: more would say nothing new.
type subscriber struct{ wake chan struct{} }

func (s *subscriber) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Subscribe returns a channel that receives after a record of one of the
// subjects was applied, each of which is given once; several records may share
// one receive. A reader that subscribes, then reads, then receives misses
// nothing. cancel ends it and may be called more than once; the channel is never
// closed. All subjects count as one subscriber.
func (t *Table) Subscribe(to []Subject) (wake <-chan struct{}, cancel func(), err error) {
	s := &subscriber{wake: make(chan struct{}, 1)}
	if err := t.add(to, s); err != nil {
		return nil, nil, err
	}
	return s.wake, func() { t.remove(to, s) }, nil
}

func (t *Table) add(to []Subject, s *subscriber) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n >= t.Max {
		return ErrTooMany
	}
	if t.by == nil {
		t.by = make(map[Subject][]*subscriber)
	}
	for _, to := range to {
		t.by[to] = append(t.by[to], s)
	}
	if len(to) > 0 {
		t.n++
	}
	return nil
}

func (t *Table) remove(all []Subject, s *subscriber) {
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

// Applied wakes the subscribers of a shard of which n records were applied, and
// those of the records' entities.
func (t *Table) Applied(shard sharding.ShardID, n int, entity func(i int) string) {
	t.collect(shard, n, entity)
	for i, s := range t.wake {
		s.signal()
		t.wake[i] = nil
	}
	t.wake = t.wake[:0]
}

func (t *Table) collect(shard sharding.ShardID, n int, entity func(i int) string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == 0 {
		return
	}
	for i := range n {
		t.wake = append(t.wake, t.by[Subject{shard, entity(i)}]...)
	}
	if n > 0 {
		t.wake = append(t.wake, t.by[Subject{Shard: shard}]...)
	}
}

// WakeShard wakes the subscribers of a shard and of all its entities.
func (t *Table) WakeShard(shard sharding.ShardID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for to, subs := range t.by {
		if to.Shard != shard {
			continue
		}
		for _, s := range subs {
			s.signal()
		}
	}
}
