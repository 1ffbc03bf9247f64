package trial

import (
	"sync/atomic"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// ShadowSetting is the setting that lets a shadow module decide a share of a type's
// commands. The zero value means none.
type ShadowSetting struct {
	Digest   journal.Digest
	Share    uint32 // share of the commands, in units of 1/sharding.Buckets
	Revision uint64 // revision of the setting
}

// ParseShadowSetting parses a shadow setting: a digest in hex, and a percentage from
// 0.01 to 100.
func ParseShadowSetting(text string) (ShadowSetting, error) {
	digest, share, err := meta.ParseShadow(text)
	return ShadowSetting{Digest: journal.Digest(digest), Share: share}, err
}

// Watch compares commands on one node as a shadow setting requests, and holds the
// results.
// It is safe for concurrent use.
type Watch struct {
	ShadowSetting
	Tally
	queue *Queue
	ended atomic.Bool
}

// Takes reports whether a command that the module by has decided must be
// offered. seed is the seed of the command's random numbers. Executors call
// it. It returns false for a nil Watch.
func (w *Watch) Takes(by journal.Digest, seed uint64) bool {
	return w != nil && inShare(seed, w.Share) && by != w.Digest
}

// Offer queues a command for comparison, or counts it as dropped. It does not
// block and does not keep the command's slices.
func (w *Watch) Offer(c Command) {
	c.For = w
	if !w.queue.Offer(c) {
		w.Drop()
	}
}

// HasEnded reports whether the shadow setting of the watch was changed or removed.
func (w *Watch) HasEnded() bool { return w.ended.Load() }

// Watches are the watches of a node. They are safe for concurrent use.
type Watches struct {
	queue *Queue
	of    atomic.Pointer[map[string]*Watch] // watches by entity type; nil if there are none
}

// NewWatches returns an empty set.
func NewWatches() *Watches { return &Watches{queue: newQueue()} }

// Of returns the watch of an entity type, or nil.
func (w *Watches) Of(entityType string) *Watch {
	if of := w.of.Load(); of != nil {
		return (*of)[entityType]
	}
	return nil
}

// Queue returns the queue of commands to compare, of all types.
func (w *Watches) Queue() *Queue { return w.queue }

// Learn sets the shadow settings, by entity type. If a setting is unchanged, its
// watch and counts are kept. Learn must be called from one goroutine.
func (w *Watches) Learn(wishes map[string]ShadowSetting) {
	next := make(map[string]*Watch, len(wishes))
	for name, wish := range wishes {
		if is := w.Of(name); is != nil && is.ShadowSetting == wish {
			next[name] = is
		} else {
			next[name] = &Watch{ShadowSetting: wish, queue: w.queue}
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
