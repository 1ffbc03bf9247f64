package eventlog

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Bounds of what can be applied, part of what makes an entry valid on every
// replica: a value in the store holds at most 1 MiB.
const (
	// MaxEntryBytes bounds an entry's data.
	MaxEntryBytes = 1 << 20
	// MaxRecordBytes bounds a record, framing included.
	MaxRecordBytes = 1<<20 - 1<<10
)

// Machine applies committed entries. What was applied is in the overlay, and
// readable, until a batch has taken it to the store:
//
//	Apply -> overlay -> TakeBatch -> Batch.Write -> Flushed -> store
//
// Apply, TakeBatch and Flushed belong to one goroutine. Batch.Write may run on
// another between TakeBatch and Flushed. All other methods may be called from
// any goroutine.
type Machine struct {
	st   Store
	opts Options

	// Of the applying goroutine.
	chain   journal.Chain
	view    journal.RecordView
	judged  []judged
	steps   []timerStep
	post    postStage
	judging uint64 // number of the entry being judged
	key     []byte
	slab    []applied
	imports importStage
	clock   headClock
	batch   Batch
	next    uint64 // version of the next batch
	started bool
	failed  error // of the store: nothing can be applied any more

	unflushed atomic.Int64 // bytes in the overlay, batch in flight included

	// mu guards what readers see. Only the applying goroutine writes, so that
	// it reads without the lock.
	mu      sync.RWMutex
	shards  map[sharding.ShardID]*shard
	dirty   []*head  // with records that no batch has taken
	moved   []*shard // applied further since the last batch
	flight  *Batch   // taken and not flushed
	readAt  uint64   // version of the store that holds all that left the overlay
	meta    []KV     // not taken by a batch
	durable durability
	subs    subscriptions

	background background // of the applying goroutine
}

// shard is one shard's state; guarded like the Machine.
type shard struct {
	id         sharding.ShardID
	generation uint32
	applied    store.Applied
	flushed    store.Applied // of it, what the store holds at readAt
	stopped    *StoppedError
	imported   *store.Import // nil where the shard never was imported
	installing *install      // the life begins with it, and it is not read in yet
	replaced   bool          // another life of the shard has taken its place
	heads      map[string]*head
	order      []*applied // records with events that no batch has taken
	timers     timers
	post       post
	moved      bool // it is in the Machine's list
}

// Open returns the Machine as it was at the watermark that the log recorded.
// Entries after Applied are given to Apply again. The store stays the
// caller's. SetRecoveryTargets follows, before the first Apply.
func Open(st *store.Store, watermark uint64, opts Options) (*Machine, error) {
	return OpenOn(stored{st}, watermark, opts)
}

// OpenOn is Open with any Store.
func OpenOn(st Store, watermark uint64, opts Options) (*Machine, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("event log options: %w", err)
	}
	m := &Machine{st: st, opts: opts.withDefaults(), readAt: watermark, shards: make(map[sharding.ShardID]*shard)}
	m.clock.max = m.opts.MaxHeads
	m.subs.max = m.opts.MaxSubscribers
	m.durable.open(watermark)
	if w := st.Watermark(); w < watermark {
		return nil, &store.DamageError{Where: "tables", What: fmt.Sprintf("they reach version %d, the log was cut at %d", w, watermark)}
	}
	view, err := st.ViewAt(watermark)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	if err := m.openLives(view); err != nil {
		return nil, fmt.Errorf("open event log: %w", err)
	}
	if m.opts.Metadata == nil {
		return m, nil
	}
	prefix := store.AppendPrefix(nil, sharding.MetaShard, m.shard(sharding.MetaShard).generation, store.ClassMeta)
	err = view.Scan(prefix, nil, func(key, body []byte) error {
		return m.opts.Metadata.Restore(key[len(prefix):], body)
	})
	if err != nil {
		return nil, fmt.Errorf("restore metadata: %w", err)
	}
	return m, nil
}

// SetRecoveryTargets is told the last index of each shard's log and readies the
// store for the entries after the watermark: whatever a crash left of later
// batches is rolled back, so that they are judged as they were the first time.
// A store that had applied more than the log holds is damage: the log has lost
// entries that were acknowledged.
func (m *Machine) SetRecoveryTargets(last map[sharding.ShardID]uint64) error {
	if m.started {
		return nil
	}
	view, err := m.st.ViewAt(m.st.MaxVersion())
	if err != nil {
		return err
	}
	lives, err := view.Lives()
	view.Close()
	if err != nil {
		return fmt.Errorf("ready event log: %w", err)
	}
	for i := range lives {
		l := &lives[i]
		if sh := m.shards[l.Shard]; sh != nil && l.Generation != sh.generation {
			continue
		}
		if end, known := last[l.Shard]; known && l.Applied.Index > end {
			return &store.DamageError{
				Where: fmt.Sprintf("log of shard %d", l.Shard),
				What:  fmt.Sprintf("it ends at index %d, index %d was applied", end, l.Applied.Index),
			}
		}
	}
	return m.start()
}

func (m *Machine) start() error {
	at, err := m.st.RollBack(m.readAt)
	if err != nil {
		return fmt.Errorf("ready event log: %w", err)
	}
	m.mu.Lock()
	m.readAt = at
	m.mu.Unlock()
	m.durable.ready(at)
	m.next = max(m.st.MaxVersion(), at) + 1
	m.started = true
	return m.finishInstalls()
}

// shard returns the shard's state, made at its first mention. It is for the
// applying goroutine.
func (m *Machine) shard(id sharding.ShardID) *shard {
	if sh := m.shards[id]; sh != nil {
		return sh
	}
	sh := &shard{id: id, heads: make(map[string]*head)}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shards[id] = sh
	return sh
}

// Applied returns how far the shard is applied: right after Open, as of the
// watermark, which is raft's Config.Applied. A snapshot that is to be installed
// counts.
func (m *Machine) Applied(id sharding.ShardID) (index uint64, term sharding.Term) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sh := m.shards[id]; sh != nil {
		if in := sh.installing; in != nil {
			return in.Index, in.Term
		}
		return sh.applied.Index, sh.applied.Term
	}
	return 0, 0
}

// Clock is the shard's log clock: the highest recordedAt applied, unix
// nanoseconds, 0 for none.
func (m *Machine) Clock(id sharding.ShardID) int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sh := m.shards[id]; sh != nil {
		return sh.applied.Clock
	}
	return 0
}

// BindingRevision is the highest binding revision that the shard's log has
// carried: whoever leads it runs no older bindings.
func (m *Machine) BindingRevision(id sharding.ShardID) uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sh := m.shards[id]; sh != nil {
		return sh.applied.Revision
	}
	return 0
}

// Entities is how many entities of the shard exist.
func (m *Machine) Entities(id sharding.ShardID) uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sh := m.shards[id]; sh != nil {
		return sh.applied.Entities
	}
	return 0
}

// Bytes is how long the shard's records are, as encoded: about what they take in
// the store.
func (m *Machine) Bytes(id sharding.ShardID) uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sh := m.shards[id]; sh != nil {
		return sh.applied.Bytes
	}
	return 0
}

// Stopped returns why the shard has stopped, nil if it has not.
func (m *Machine) Stopped(id sharding.ShardID) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sh := m.shards[id]; sh != nil && sh.stopped != nil {
		return sh.stopped
	}
	return nil
}

// Unflushed is the size of what was applied and is not in the store yet.
func (m *Machine) Unflushed() int64 { return m.unflushed.Load() }

// Failed returns the store's error that ended applying; nil if there is none.
// It is for the applying goroutine.
func (m *Machine) Failed() error { return m.failed }
