package eventlog

import (
	"fmt"
	"sync/atomic"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/durable"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/outbox"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/eventlog/subscription"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
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
	Reader

	// Of the applying goroutine.
	chain   journal.Chain
	record  journal.RecordView
	judged  []judged
	outbox  outbox.Stage
	timers  timers.Stage
	judging uint64 // number of the entry being judged
	key     []byte
	slab    []history.Record
	imports importStage
	sums    sums
	clock   headClock
	batch   Batch
	next    uint64 // version of the next batch
	started bool
	failed  error // of the store: nothing can be applied any more

	unflushed atomic.Int64 // bytes in the overlay, batch in flight included

	moved   []*shard // applied further since the last batch
	meta    []KV     // not taken by a batch
	durable durable.Indexes

	suspects   suspects
	background background // of the applying goroutine
}

// shard is one shard's state; guarded by the Reader's lock.
type shard struct {
	id         sharding.ShardID
	generation uint32
	applied    store.Applied
	flushed    store.Applied // of it, what the store holds at readAt
	rows       *rows.Known
	digests    digests
	stopped    *StoppedError
	imported   *store.Import // nil where the shard never was imported
	installing *install      // the generation begins with it, and it is not read in yet
	replaced   bool          // another generation of the shard has taken its place
	heads      map[string]*head
	order      []*history.Record // records with events that no batch has taken
	timers     *timers.Set
	outbox     *outbox.Box
	moved      bool // it is in the Machine's list
}

// Open returns the Machine as it was at the watermark that the log recorded.
// Entries after Applied are given to Apply again. The store stays the
// caller's. SetRecoveryTargets follows, before the first Apply.
func Open(st *store.Store, watermark uint64, opts Options) (*Machine, error) {
	return OpenOn(kv.Of(st), watermark, opts)
}

// OpenOn is Open with any Store.
func OpenOn(st kv.Store, watermark uint64, opts Options) (*Machine, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("event log options: %w", err)
	}
	m := &Machine{}
	m.Reader.open(st, watermark, opts.withDefaults())
	m.outbox.View, m.outbox.Sums = m.view, &m.sums.Writer
	m.timers.View, m.timers.Sums = m.view, &m.sums.Writer
	m.clock.max = m.opts.MaxHeads
	m.suspects.met = make(chan struct{}, 1)
	m.durable.Open(watermark)
	if w := st.Watermark(); w < watermark {
		return nil, &store.DamageError{Where: "tables", What: fmt.Sprintf("they reach version %d, the log was truncated at %d", w, watermark)}
	}
	view, err := st.ViewAt(watermark)
	if err != nil {
		return nil, err
	}
	defer view.Close()
	if err := m.openGenerations(view); err != nil {
		return nil, fmt.Errorf("open event log: %w", err)
	}
	if m.opts.Metadata == nil {
		return m, nil
	}
	prefix := store.AppendPrefix(nil, sharding.MetaShard, m.shard(sharding.MetaShard).generation, store.ClassMeta)
	err = m.replaceMetadata(0, func(put func(key, value []byte) error) error {
		return view.Scan(prefix, nil, func(key, body []byte) error { return put(key[len(prefix):], body) })
	})
	if err != nil {
		return nil, fmt.Errorf("open event log: %w", err)
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
	generations, err := view.Generations()
	view.Close()
	if err != nil {
		return fmt.Errorf("ready event log: %w", err)
	}
	for i := range generations {
		l := &generations[i]
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
	m.durable.Ready(at)
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
	sh := m.newShard(id, 0)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shards[id] = sh
	return sh
}

func (m *Machine) newShard(id sharding.ShardID, generation uint32) *shard {
	sh := &shard{id: id, generation: generation, heads: make(map[string]*head)}
	sh.rows = rows.New(id, generation, m.opts.Seed, func(err error) error { return m.suspects.add(sh, err) })
	sh.outbox, sh.timers = outbox.NewBox(sh.rows), timers.NewSet(sh.rows)
	return sh
}

// Durable fills dst with the highest raft index of each shard whose effects
// survive a power cut as of the returned watermark. Before it is called again
// the caller has made the watermark of the call before durable in its log, or
// has stopped: from then on a restart begins no earlier, and the store may
// forget what was overwritten until there.
func (m *Machine) Durable(dst map[sharding.ShardID]uint64) (watermark uint64) {
	recorded, watermark := m.durable.Read(m.st.Watermark(), dst)
	m.st.SetDiscard(recorded)
	return watermark
}

// ErrTooManySubscribers: MaxSubscribers are subscribed. Retry later.
var ErrTooManySubscribers = subscription.ErrTooMany

// Unflushed is the size of what was applied and is not in the store yet.
func (m *Machine) Unflushed() int64 { return m.unflushed.Load() }

// Failed returns the store's error that ended applying; nil if there is none.
// It is for the applying goroutine.
func (m *Machine) Failed() error { return m.failed }
