package eventlog

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/outbox"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Batch has all changes since the previous batch, on their way to the store. It
// is complete: after a crash the store has the state after some batch.
type Batch struct {
	Version uint64
	base    uint64 // store version of the previous batch

	heads  []rowWrite
	shards []shardWrite
	meta   []KV
	bytes  int64
	pack   int
	keys   []string // scratch for the keys of changed message rows
	told   []storedIndex

	view journal.RecordView
	kvs  store.Batch

	background batchBackground
}

// rowWrite is an entity's new records first..last and its row after them.
type rowWrite struct {
	head        *entityRow
	state       store.Head
	first, last *history.Record // nil if only the row has changed
	before      journal.Position
	snaps       []history.Snapshot
	gone        []journal.Sequence // snapshots to delete
	cut         bool               // records have been truncated since the previous batch
}

// shardWrite is the applied state of a shard and its new records in order.
type shardWrite struct {
	shard   *shard
	applied store.Applied
	order   []*history.Record
	timers  *timers.Changes
	outbox  outbox.Changes
	before  uint64 // index of the last order block before these records
}

// TakeBatch returns all changes that are in no batch yet, or nil if there are
// none or the previous batch is not flushed. The Batch belongs to the Machine
// and is reused after MarkFlushed.
func (m *Machine) TakeBatch() *Batch {
	if m.flight != nil || m.failed != nil || !m.HasPending() {
		return nil
	}
	b := &m.batch
	m.updateChecksums(nil)
	summed := m.opts.ClusterVersion() >= sharding.VersionRowChecksums
	m.lockLong()
	defer m.unlockLong()
	b.heads, b.shards = b.heads[:0], b.shards[:0]
	for i, sh := range m.moved {
		sh.applied.Summed = summed
		b.shards = append(b.shards, sh.take())
		m.moved[i] = nil
	}
	m.moved = m.moved[:0]
	for i, h := range m.dirty {
		w := rowWrite{head: h, state: h.Head, before: h.before}
		w.snaps, w.gone = h.snaps.take()
		w.cut, h.cut = h.cut, false
		if h.pending != nil {
			w.first, w.last = h.pending, h.last
			h.pending, h.before = nil, h.last.At
		}
		b.heads = append(b.heads, w)
		h.listed, h.flying, m.dirty[i] = false, true, nil
	}
	m.dirty = m.dirty[:0]
	b.meta, m.meta = m.meta, nil
	b.background = m.background.take()
	if sh := m.shards[sharding.MetaShard]; sh != nil {
		b.background.metaGeneration = sh.generation
	}
	b.bytes, b.pack = m.unflushed.Load(), m.opts.BlockBytes
	b.Version, b.base = m.next, m.readAt
	m.next++
	m.flight = b
	return b
}

func (sh *shard) take() shardWrite {
	w := shardWrite{shard: sh, order: sh.order, timers: sh.timers.Take(), outbox: sh.outbox.Take(), before: sh.applied.Ordered}
	if n := len(sh.order); n > 0 {
		sh.applied.Ordered = sh.order[n-1].At.Index
	}
	sh.applied.Sums = *sh.rows.Sums()
	w.applied = sh.applied
	sh.order, sh.moved = nil, false
	return w
}

// HasPending reports whether there is anything for a batch.
func (m *Machine) HasPending() bool { return len(m.moved) > 0 || m.background.pending() }

// MarkFlushed must be called when the batch is in the store. It removes the
// batch's records from the memtable. Readers that started earlier keep their
// view.
func (m *Machine) MarkFlushed(b *Batch) {
	m.lockLong()
	m.readAt = b.Version
	for i := range b.shards {
		w := &b.shards[i]
		w.shard.flushed = w.applied
		w.shard.rows.MarkFlushed(&w.applied.Sums)
	}
	m.background.markFlushed(&b.background)
	for i := range b.heads {
		w := &b.heads[i]
		h := w.head
		h.flying = false
		if h.shard.replaced {
			continue
		}
		h.markSnapshotsFlushed()
		if w.last == nil {
			continue
		}
		if h.first, h.base = w.last.Next, w.last.At; h.first == nil {
			h.last = nil
		}
	}
	for i := range b.shards {
		b.shards[i].shard.timers.MarkFlushed()
		b.shards[i].shard.outbox.MarkFlushed()
	}
	m.flight = nil
	m.unlockLong()
	m.unflushed.Add(-b.bytes)
	m.durable.MarkFlushed(b.Version, b.flushedIndexes())
	clear(b.heads)
	clear(b.shards)
	b.meta, b.background = nil, batchBackground{}
	m.evictRows()
}

// flushedIndexes returns the index of each shard in the batch.
func (b *Batch) flushedIndexes() []storedIndex {
	b.told = b.told[:0]
	for i := range b.shards {
		w := &b.shards[i]
		b.told = append(b.told, storedIndex{Shard: w.shard.id, Index: w.applied.Index, Generation: w.shard.generation})
	}
	for _, in := range b.background.of {
		b.told = append(b.told, storedIndex{Shard: in.shard.id, Index: in.Index, Generation: in.shard.generation})
	}
	return b.told
}

// setPause makes Write call rest between parts of the batch, unless the batch
// contains part of a generation, for which someone is waiting.
func (b *Batch) setPause(rest func(took time.Duration)) {
	if b.kvs.Pause = rest; len(b.background.pieces) > 0 {
		b.kvs.Pause = nil
	}
}

// Write encodes the batch and writes it to the store. After an error the state
// of the store is unknown and the process must end.
func (b *Batch) Write(st *store.Store) error { return b.WriteTo(kv.Of(st)) }

// encodedAtOnce is the number of entities to encode before yielding the
// processor, because usually no one is waiting for a batch.
const encodedAtOnce = 64

// WriteTo is Write with any Store.
func (b *Batch) WriteTo(st kv.Store) error {
	b.kvs.Reset()
	for i := range b.heads {
		if i%encodedAtOnce == encodedAtOnce-1 {
			runtime.Gosched()
		}
		if err := b.dropRecords(&b.heads[i], st); err != nil {
			return fmt.Errorf("flush event log: %w", err)
		}
		b.putRecords(&b.heads[i])
		b.putSnapshots(&b.heads[i])
		b.putHead(&b.heads[i])
	}
	for i := range b.shards {
		if err := b.putOrder(&b.shards[i]); err != nil {
			return err
		}
		b.shards[i].shard.timers.Put(&b.kvs, b.shards[i].timers)
		b.keys = b.shards[i].shard.outbox.Put(&b.kvs, b.shards[i].outbox, b.keys)
		b.putApplied(&b.shards[i])
	}
	b.putMeta()
	b.putPieces()
	if err := st.Write(&b.kvs, b.Version); err != nil {
		return fmt.Errorf("flush event log: %w", err)
	}
	return nil
}

func (b *Batch) prefix(sh *shard, class store.Class) []byte {
	return store.AppendPrefix(b.kvs.Key(), sh.id, sh.generation, class)
}

// putRecords writes an entity's records, grouped into blocks. The record at
// which a load from a snapshot starts begins a new block.
func (b *Batch) putRecords(w *rowWrite) {
	sh := w.head.shard
	for first, before := w.first, w.before; first != nil; {
		end, size := first, store.PackRecordBytes(len(first.Raw))
		for end != w.last {
			if size += store.PackRecordBytes(len(end.Next.Raw)); size > b.pack || w.startsSnapshotLoad(end) {
				break
			}
			end = end.Next
		}
		if w.isTruncated(end.At) {
			if end == w.last {
				return
			}
			first, before = end.Next, end.At
			continue
		}
		key := append(b.prefix(sh, store.ClassRecord), w.head.key...)
		buf := b.kvs.Begin(store.AppendRecordSuffix(key, end.Seq, end.At))
		buf = store.AppendPackStart(buf, before)
		for r := first; ; r = r.Next {
			buf = store.AppendPackRecord(buf, r.At, r.Raw)
			if r == end {
				break
			}
		}
		b.kvs.End(buf)
		if end == w.last {
			return
		}
		first, before = end.Next, end.At
	}
}

// startsSnapshotLoad reports whether a snapshot exists at the record after r. A
// load verifies the snapshot against that record and continues reading from
// there.
func (w *rowWrite) startsSnapshotLoad(r *history.Record) bool {
	return r.Next.Seq > r.Seq && slices.Contains(w.state.Snapshots[:], r.Next.Seq)
}

func (b *Batch) putHead(w *rowWrite) {
	key := append(b.prefix(w.head.shard, store.ClassEntity), w.head.key...)
	b.kvs.End(store.AppendHead(b.kvs.Begin(key), &w.state))
}

func (b *Batch) putApplied(w *shardWrite) {
	b.kvs.End(store.AppendApplied(b.kvs.Begin(b.prefix(w.shard, store.ClassApplied)), &w.applied))
}

// putOrder writes the order rows of a shard, grouped into blocks. The rows of
// an entry stay together.
func (b *Batch) putOrder(w *shardWrite) error {
	order, before := w.order, w.before
	for len(order) > 0 {
		n, size := 0, 0
		for n < len(order) {
			size += orderBytes(order[n])
			if n > 0 && size > b.pack && order[n].At.Index != order[n-1].At.Index {
				break
			}
			n++
		}
		last := order[n-1].At.Index
		buf := b.kvs.Begin(store.AppendIndex(b.prefix(w.shard, store.ClassOrder), last))
		// The cluster version never decreases, so if a row has no fingerprint,
		// earlier rows have none either.
		pack := store.OrderWriter{Fingerprints: order[n-1].Fingerprint != 0}
		buf = pack.Start(buf, before)
		for at := before; len(order) > 0 && n > 0; n-- {
			if err := b.view.Parse(order[0].Raw); err != nil {
				return fmt.Errorf("flush event log: %w", err)
			}
			buf = pack.Row(buf, at, order[0].At, order[0].Fingerprint, &b.view)
			at = order[0].At.Index
			order = order[1:]
		}
		b.kvs.End(buf)
		before = last
	}
	return nil
}

// orderBytes estimates the size of a record's order row without tags.
func orderBytes(r *history.Record) int { return int(r.KeyBytes) + 12 }

// putMeta writes the metadata pairs. If a key occurs several times, the last
// value is written.
func (b *Batch) putMeta() {
	if len(b.meta) == 0 {
		return
	}
	last := make(map[string]int, len(b.meta))
	for i, kv := range b.meta {
		last[string(kv.Key)] = i
	}
	for i, kv := range b.meta {
		if last[string(kv.Key)] != i {
			continue
		}
		key := append(store.AppendPrefix(b.kvs.Key(), sharding.MetaShard, b.background.metaGeneration, store.ClassMeta), kv.Key...)
		if kv.Value == nil {
			b.kvs.Delete(key)
		} else {
			b.kvs.Put(key, kv.Value)
		}
	}
}
