package trial

import (
	"sync/atomic"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// Wish is that a module decides a share of a type's commands beside the one
// that serves it. The zero value is none.
type Wish struct {
	Digest   journal.Digest
	Share    uint32 // of sharding.Buckets
	Revision uint64 // of the setting that says so
}

// ParseWish reads what a setting says: a digest, in hex, and a percentage from 0.01
// to 100.
func ParseWish(text string) (Wish, error) {
	digest, share, err := meta.ParseShadow(text)
	return Wish{Digest: journal.Digest(digest), Share: share}, err
}

// Watch is what one node compares because of a wish, and what came of it. It is
// safe for concurrent use.
type Watch struct {
	Wish
	Tally
	queue *Queue
	ended atomic.Bool
}

// Takes reports whether a command that a module has decided is to be offered;
// seed is that of its random numbers. It is called by lanes, and a nil Watch
// takes none.
func (w *Watch) Takes(by journal.Digest, seed uint64) bool {
	return w != nil && Taken(seed, w.Share) && by != w.Digest
}

// Offer has a command be compared, or counts that there is no room. It does not
// block, and keeps none of the command's slices.
func (w *Watch) Offer(c Command) {
	c.For = w
	if !w.queue.Offer(c) {
		w.Drop()
	}
}

// Ended reports that nobody wants it any more.
func (w *Watch) Ended() bool { return w.ended.Load() }

// Watches are those of a node. They are safe for concurrent use.
type Watches struct {
	queue *Queue
	of    atomic.Pointer[map[string]*Watch] // by entity type; nil: none
}

// NewWatches returns none.
func NewWatches() *Watches { return &Watches{queue: NewQueue()} }

// Of is that of an entity type; nil for none.
func (w *Watches) Of(entityType string) *Watch {
	if of := w.of.Load(); of != nil {
		return (*of)[entityType]
	}
	return nil
}

// Queue is what waits to be compared, of all types.
func (w *Watches) Queue() *Queue { return w.queue }

// Learn has these be the wishes, by entity type. What was counted for one that
// is as before goes on. It is for one goroutine.
func (w *Watches) Learn(wishes map[string]Wish) {
	next := make(map[string]*Watch, len(wishes))
	for name, wish := range wishes {
		if is := w.Of(name); is != nil && is.Wish == wish {
			next[name] = is
		} else {
			next[name] = &Watch{Wish: wish, queue: w.queue}
		}
	}
	if was := w.of.Load(); was != nil {
		for name, one := range *was {
			if next[name] != one {
				one.ended.Store(true)
			}
		}
	}
	if w.of.Store(&next); len(next) == 0 {
		w.of.Store(nil)
	}
}
