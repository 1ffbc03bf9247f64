package eventlog

import (
	"fmt"
	"sync/atomic"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/outbox"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Machine applies committed entries. Changes are in the memtable, and readable,
// until a batch has moved them to the store:
//
//	Apply -> memtable -> TakeBatch -> Batch.Write -> MarkFlushed -> store
//
// Apply, TakeBatch and MarkFlushed belong to one goroutine. Batch.Write may run
// on another goroutine between TakeBatch and MarkFlushed. All other methods are
// safe for concurrent use.
type Machine struct {
	Reader

	// Used by the applying goroutine only.
	chain     journal.Chain
	record    journal.RecordView
	checked   []checkedRecord
	outbox    outbox.Stage
	timers    timers.Stage
	checkID   uint64 // number of the entry being checked
	key       []byte
	slab      []history.Record
	imports   importStage
	checksums checksums
	clock     rowClock
	batch     Batch
	next      uint64 // version of the next batch
	started   bool
	failed    error // failure of the store, after which nothing can be applied

	unflushed atomic.Int64 // bytes in the memtable, including the batch in flight

	moved   []*shard // shards with applied entries that are in no batch yet
	meta    []KV     // in no batch yet
	durable durableIndexes

	suspects   suspects
	background background // used by the applying goroutine only
}

// shard is the state of one shard, guarded by the Reader's lock.
type shard struct {
	id         sharding.ShardID
	generation uint32
	applied    store.Applied
	flushed    store.Applied // the value of applied that the store has at version readAt
	rows       *rows.Known
	digests    checksumHistory
	stopped    *StoppedError
	imported   *store.Import // nil if the shard was never imported
	installing *install      // the generation starts from this snapshot, which is not installed yet
	replaced   bool          // a newer generation of the shard has replaced it
	heads      map[string]*entityRow
	order      []*history.Record // records with events that are in no batch yet
	timers     *timers.Set
	outbox     *outbox.Box
	moved      bool // listed in Machine.moved
}

// Open returns the Machine in the state of the watermark recorded in the log.
// Entries after Applied must be passed to Apply again. The caller keeps
// ownership of the store. Call SetRecoveryTargets before the first Apply.
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
	m.outbox.Store, m.outbox.Sums = m.Outboxes.From, &m.checksums.Writer
	m.timers.Store, m.timers.Sums = m.Lists.Of, &m.checksums.Writer
	m.clock.max = m.opts.MaxEntityRows
	m.suspects.met = make(chan struct{}, 1)
	m.durable.Open(watermark)
	if w := st.Watermark(); w < watermark {
		return nil, &store.DamageError{Where: "tables", What: fmt.Sprintf("the tables reach version %d, but the log was truncated at %d", w, watermark)}
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

// SetRecoveryTargets takes the last index of each shard's log and prepares the
// store for the entries after the watermark. It rolls back the remains of later
// batches that a crash has left, so that the entries are checked against the
// same state as when they were first applied. If the store has applied entries
// that are missing from a log, that log has lost acknowledged entries, and
// SetRecoveryTargets reports damage.
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
		return fmt.Errorf("prepare event log: %w", err)
	}
	for i := range generations {
		l := &generations[i]
		if sh := m.shards[l.Shard]; sh != nil && l.Generation != sh.generation {
			continue
		}
		if end, known := last[l.Shard]; known && l.Applied.Index > end {
			return &store.DamageError{
				Where: fmt.Sprintf("log of shard %d", l.Shard),
				What:  fmt.Sprintf("the log ends at index %d, but index %d was applied", end, l.Applied.Index),
			}
		}
	}
	return m.start()
}

func (m *Machine) start() error {
	at, err := m.st.RollBack(m.readAt)
	if err != nil {
		return fmt.Errorf("prepare event log: %w", err)
	}
	m.mu.Lock()
	m.readAt = at
	m.mu.Unlock()
	m.durable.Ready(at)
	m.next = max(m.st.MaxVersion(), at) + 1
	m.started = true
	return m.finishInstalls()
}

// shard returns the state of a shard, creating it if it is new. It may only be
// called by the applying goroutine.
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
	sh := &shard{id: id, generation: generation, heads: make(map[string]*entityRow)}
	sh.rows = rows.New(id, generation, m.opts.Seed, func(err error) error { return m.suspects.add(sh, err) })
	sh.outbox, sh.timers = outbox.NewBox(sh.rows), timers.NewSet(sh.rows)
	return sh
}

// Durable sets dst to the highest raft index of each shard whose effects
// survive a power failure, as of the returned watermark. Before calling it
// again, the caller must have recorded the previous watermark durably in its
// log, or have stopped. From then on no restart begins before that watermark,
// and the store may discard versions overwritten before it.
func (m *Machine) Durable(dst map[sharding.ShardID]uint64) (watermark uint64) {
	recorded, watermark := m.durable.Read(m.st.Watermark(), dst)
	m.st.SetDiscard(recorded)
	return watermark
}

// UnflushedBytes returns the size of the applied changes that are not in the
// store yet.
func (m *Machine) UnflushedBytes() int64 { return m.unflushed.Load() }

// Err returns the store's failure that ended applying, or nil. It may only be
// called by the applying goroutine.
func (m *Machine) Err() error { return m.failed }
