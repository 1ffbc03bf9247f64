package eventlog

import (
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/outbox"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Reader serves all reads of a Machine, from any goroutine. Each read sees a
// consistent snapshot of the store and the memtable. Reader holds the state
// that readers see. Only the applying goroutine changes it, under the lock, and
// therefore reads it without. The lock is never held while reading the store.
type Reader struct {
	outbox.Outboxes
	timers.Lists

	st     kv.Store
	opts   Options
	mu     sync.RWMutex
	long   atomic.Bool // the lock is held for work that may take milliseconds
	shards map[sharding.ShardID]*shard
	dirty  []*entityRow // rows with changes that are in no batch yet
	flight *Batch       // the batch in flight
	readAt uint64       // store version that contains all changes that have left the memtable
	subs   subscriptions
}

func (r *Reader) open(st kv.Store, watermark uint64, opts Options) {
	r.st, r.opts, r.readAt = st, opts, watermark
	r.shards = make(map[sharding.ShardID]*shard)
	r.Outboxes.From, r.Lists.Of = boxes{r}, timerSets{r}
	r.subs.Max = opts.MaxSubscribers
}

// lockLong acquires the lock for work on a whole batch. It sets long, so that
// goroutines that do not want to wait can give up. It may only be called by the
// applying goroutine.
func (r *Reader) lockLong() {
	r.long.Store(true)
	r.mu.Lock()
}

func (r *Reader) unlockLong() {
	r.long.Store(false)
	r.mu.Unlock()
}

// view returns a view of the store for everything that has left the memtable.
// The caller holds the lock or is the applying goroutine.
func (r *Reader) view() (kv.View, error) { return r.st.ViewAt(r.readAt) }

// Applied returns the shard's applied index and its term. Right after Open,
// they are the values at the watermark, which raft needs for Config.Applied. A
// snapshot that is being installed counts as applied.
func (r *Reader) Applied(id sharding.ShardID) (index uint64, term sharding.Term) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		if in := sh.installing; in != nil {
			return in.Index, in.Term
		}
		return sh.applied.Index, sh.applied.Term
	}
	return 0, 0
}

// Clock returns the shard's log clock: the highest recordedAt applied, in Unix
// nanoseconds, or 0.
func (r *Reader) Clock(id sharding.ShardID) int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		return sh.applied.Clock
	}
	return 0
}

// BindingRevision returns the highest binding revision in the shard's log. Its
// leader must not run older bindings.
func (r *Reader) BindingRevision(id sharding.ShardID) uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		return sh.applied.Revision
	}
	return 0
}

// Entities returns the number of existing entities of the shard.
func (r *Reader) Entities(id sharding.ShardID) uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		return sh.applied.Entities
	}
	return 0
}

// EntityRows returns the number of entities of the shard, including deleted
// entities.
func (r *Reader) EntityRows(id sharding.ShardID) uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		return sh.applied.Heads
	}
	return 0
}

// Bytes returns the total encoded size of the shard's records, which is about
// their size in the store.
func (r *Reader) Bytes(id sharding.ShardID) uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		return sh.applied.Bytes
	}
	return 0
}

// ImportState returns the progress of the shard's import, and false if none has
// started.
func (r *Reader) ImportState(id sharding.ShardID) (store.Import, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil && sh.imported != nil {
		return *sh.imported, true
	}
	return store.Import{}, false
}

// IsInstalling reports whether a snapshot of the shard is being installed.
// Until that is done, the metadata state machine (for shard 0) still has the
// previous state.
func (r *Reader) IsInstalling(id sharding.ShardID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	sh := r.shards[id]
	return sh != nil && sh.installing != nil
}

// Subscribe returns a channel that is signaled after records of the entity were
// applied; several records may share one signal. A reader that subscribes, then
// reads, and then waits for the signal misses no records. cancel ends the
// subscription and may be called more than once; the channel is never closed.
func (r *Reader) Subscribe(id sharding.ShardID, e sharding.EntityID) (wake <-chan struct{}, cancel func(), err error) {
	return r.subs.Subscribe([]subject{{Shard: id, Entity: string(store.AppendEntityID(nil, e))}})
}

// SubscribeOrder is Subscribe for the records of all entities of the shards,
// which must be distinct. It counts as one subscriber.
func (r *Reader) SubscribeOrder(shards []sharding.ShardID) (wake <-chan struct{}, cancel func(), err error) {
	to := make([]subject, len(shards))
	for i, id := range shards {
		to[i].Shard = id
	}
	return r.subs.Subscribe(to)
}
