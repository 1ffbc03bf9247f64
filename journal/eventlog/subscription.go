package eventlog

import (
	"errors"
	"slices"
	"sync"

	"github.com/hostd/hostd/sharding"
)

// ErrTooManySubscribers: the limit MaxSubscribers is reached. Retry later.
var ErrTooManySubscribers = errors.New("too many subscribers")

// subscriptions wakes readers that wait for records of an entity or a shard. It
// only signals that there are new records; readers then read them from the
// event log. Notify may only be called by the applying goroutine; the other
// methods are safe for concurrent use.
type subscriptions struct {
	Max int // maximum number of subscribers; set before use

	mu       sync.Mutex
	n        int
	by       map[subject]*followers
	notified uint64        // number of calls of Notify
	wake     []*subscriber // used by the applying goroutine
}

// followers are the subscribers of one subject. A call of Notify wakes them
// once, however many records it is for: otherwise its work would be the number
// of records times that of the subscribers.
type followers struct {
	subscribers []*subscriber
	notified    uint64 // the last call of Notify that woke them
}

// subject identifies the records that a subscriber waits for.
type subject struct {
	Shard  sharding.ShardID
	Entity string // encoded as in keys; empty means the whole shard
}

// subscriber has room for one wake-up; more wake-ups would add no information.
type subscriber struct{ wake chan struct{} }

func (s *subscriber) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Subscribe returns a channel that is signaled after a record of one of the
// subjects was applied; several records may share one signal. The subjects must
// be distinct. A reader that subscribes, then reads, and then waits for the
// signal misses no records. cancel ends the subscription and may be called more
// than once; the channel is never closed. All subjects count as one subscriber.
func (t *subscriptions) Subscribe(to []subject) (wake <-chan struct{}, cancel func(), err error) {
	s := &subscriber{wake: make(chan struct{}, 1)}
	if err := t.add(to, s); err != nil {
		return nil, nil, err
	}
	return s.wake, func() { t.remove(to, s) }, nil
}

func (t *subscriptions) add(to []subject, s *subscriber) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n >= t.Max {
		return ErrTooManySubscribers
	}
	if t.by == nil {
		t.by = make(map[subject]*followers)
	}
	for _, to := range to {
		f := t.by[to]
		if f == nil {
			f = new(followers)
			t.by[to] = f
		}
		f.subscribers = append(f.subscribers, s)
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
		f := t.by[to]
		if f == nil {
			continue
		}
		i := slices.Index(f.subscribers, s)
		if i < 0 {
			continue
		}
		found = true
		if f.subscribers = slices.Delete(f.subscribers, i, i+1); len(f.subscribers) == 0 {
			delete(t.by, to)
		}
	}
	if found {
		t.n--
	}
}

// Notify wakes the subscribers of a shard in which n records were applied, and
// the subscribers of the records' entities.
func (t *subscriptions) Notify(shard sharding.ShardID, n int, entity func(i int) string) {
	t.collect(shard, n, entity)
	for i, s := range t.wake {
		s.signal()
		t.wake[i] = nil
	}
	t.wake = t.wake[:0]
}

func (t *subscriptions) collect(shard sharding.ShardID, n int, entity func(i int) string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n == 0 {
		return
	}
	t.notified++
	for i := range n {
		t.collectOf(subject{shard, entity(i)})
	}
	if n > 0 {
		t.collectOf(subject{Shard: shard})
	}
}

func (t *subscriptions) collectOf(to subject) {
	if f := t.by[to]; f != nil && f.notified != t.notified {
		f.notified = t.notified
		t.wake = append(t.wake, f.subscribers...)
	}
}

// WakeShard wakes the subscribers of a shard and of all its entities.
func (t *subscriptions) WakeShard(shard sharding.ShardID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for to, f := range t.by {
		if to.Shard != shard {
			continue
		}
		for _, s := range f.subscribers {
			s.signal()
		}
	}
}
