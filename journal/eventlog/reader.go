package eventlog

import (
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/outbox"
	"github.com/hostd/hostd/journal/eventlog/subscription"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Reader is what anybody may ask of a Machine, from any goroutine: what was
// applied, be it in the store yet or not, as of one moment each. It holds what
// readers see; only the applying goroutine changes that, under the lock, so it
// reads without. No lock is held while the store is read.
type Reader struct {
	outbox.Outboxes
	timers.Lists

	st     kv.Store
	opts   Options
	mu     sync.RWMutex
	long   atomic.Bool // the lock is taken for what may take milliseconds
	shards map[sharding.ShardID]*shard
	dirty  []*head // with records that no batch has taken
	flight *Batch  // taken and not flushed
	readAt uint64  // version of the store that holds all that left the overlay
	subs   subscription.Table
}

func (r *Reader) open(st kv.Store, watermark uint64, opts Options) {
	r.st, r.opts, r.readAt = st, opts, watermark
	r.shards = make(map[sharding.ShardID]*shard)
	r.Outboxes.From, r.Lists.Of = boxes{r}, timerSets{r}
	r.subs.Max = opts.MaxSubscribers
}

// lockLong takes the lock for work on all that a batch has, and says so to those
// who do not wait for that. It is for the applying goroutine.
func (r *Reader) lockLong() {
	r.long.Store(true)
	r.mu.Lock()
}

func (r *Reader) unlockLong() {
	r.long.Store(false)
	r.mu.Unlock()
}

// view is of what has left the overlay. The caller holds the lock, or is the
// applying goroutine.
func (r *Reader) view() (kv.View, error) { return r.st.ViewAt(r.readAt) }

// Applied returns how far the shard is applied: right after Open, as of the
// watermark, which is raft's Config.Applied. A snapshot that is to be installed
// counts.
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

// Clock is the shard's log clock: the highest recordedAt applied, unix
// nanoseconds, 0 for none.
func (r *Reader) Clock(id sharding.ShardID) int64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		return sh.applied.Clock
	}
	return 0
}

// BindingRevision is the highest binding revision that the shard's log has
// carried: whoever leads it runs no older bindings.
func (r *Reader) BindingRevision(id sharding.ShardID) uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		return sh.applied.Revision
	}
	return 0
}

// Entities is how many entities of the shard exist.
func (r *Reader) Entities(id sharding.ShardID) uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		return sh.applied.Entities
	}
	return 0
}

// Heads is how many entities the shard has, the deleted ones too.
func (r *Reader) Heads(id sharding.ShardID) uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		return sh.applied.Heads
	}
	return 0
}

// Bytes is how long the shard's records are, as encoded: about what they take in
// the store.
func (r *Reader) Bytes(id sharding.ShardID) uint64 {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil {
		return sh.applied.Bytes
	}
	return 0
}

// Imported is how far the import of a shard has come; false where none has
// begun.
func (r *Reader) Imported(id sharding.ShardID) (store.Import, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if sh := r.shards[id]; sh != nil && sh.imported != nil {
		return *sh.imported, true
	}
	return store.Import{}, false
}

// Installing says whether a snapshot of the shard is being installed: until
// that is done the metadata machine, for shard 0, has its state from before.
func (r *Reader) Installing(id sharding.ShardID) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	sh := r.shards[id]
	return sh != nil && sh.installing != nil
}

// Subscribe returns a channel that receives after records of the entity were
// applied; several may share one receive. A reader that subscribes, then
// reads, then receives misses nothing. cancel ends it and may be called more
// than once; the channel is never closed.
func (r *Reader) Subscribe(id sharding.ShardID, e sharding.EntityID) (wake <-chan struct{}, cancel func(), err error) {
	return r.subs.Subscribe([]subscription.Subject{{Shard: id, Entity: string(store.AppendEntityID(nil, e))}})
}

// SubscribeOrder is Subscribe for the records of all entities of some shards,
// each given once. It counts as one subscriber.
func (r *Reader) SubscribeOrder(shards []sharding.ShardID) (wake <-chan struct{}, cancel func(), err error) {
	to := make([]subscription.Subject, len(shards))
	for i, id := range shards {
		to[i].Shard = id
	}
	return r.subs.Subscribe(to)
}
