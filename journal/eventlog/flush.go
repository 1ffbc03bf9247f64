package eventlog

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/durable"
	"github.com/hostd/hostd/journal/eventlog/history"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/outbox"
	"github.com/hostd/hostd/journal/eventlog/timers"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Batch is everything that was applied since the batch before it, on its way
// to the store. It is complete: a later crash leaves the store as of a batch.
type Batch struct {
	Version uint64
	base    uint64 // the version before it

	heads  []headWrite
	shards []shardWrite
	meta   []KV
	bytes  int64
	pack   int
	keys   []string // of what is known of messages
	told   []durable.Stored

	view journal.RecordView
	kvs  store.Batch

	background batchBackground
}

// headWrite is an entity's records first..last and its head after them.
type headWrite struct {
	head        *head
	state       store.Head
	first, last *history.Record // nil when only the head has changed
	before      journal.Position
	snaps       []history.Snapshot
	gone        []journal.Sequence // snapshots to delete
	cut         bool               // records have been cut since the batch before
}

// shardWrite is how far a shard is applied, and its records in order.
type shardWrite struct {
	shard   *shard
	applied store.Applied
	order   []*history.Record
	timers  *timers.Changes
	outbox  outbox.Changes
	before  uint64 // index of the last order pack before these
}

// TakeBatch takes what no batch has taken yet, or returns nil when there is
// nothing, or a batch is not flushed yet. The Batch is the Machine's: after
// Flushed it is used again.
func (m *Machine) TakeBatch() *Batch {
	if m.flight != nil || m.failed != nil || !m.Pending() {
		return nil
	}
	b := &m.batch
	m.sumHeads(nil)
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
		w := headWrite{head: h, state: h.Head, before: h.before}
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
	b.bytes, b.pack = m.unflushed.Load(), m.opts.PackBytes
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

// Pending reports whether there is something for a batch to take.
func (m *Machine) Pending() bool { return len(m.moved) > 0 || m.background.pending() }

// Flushed is told that the batch is in the store: its records leave the
// overlay. Readers that began before keep what they saw.
func (m *Machine) Flushed(b *Batch) {
	m.lockLong()
	m.readAt = b.Version
	for i := range b.shards {
		w := &b.shards[i]
		w.shard.flushed = w.applied
		w.shard.rows.Flushed(&w.applied.Sums)
	}
	m.background.flushed(&b.background)
	for i := range b.heads {
		w := &b.heads[i]
		h := w.head
		h.flying = false
		if h.shard.replaced {
			continue
		}
		h.flushedSnapshots()
		if w.last == nil {
			continue
		}
		if h.first, h.base = w.last.Next, w.last.At; h.first == nil {
			h.last = nil
		}
	}
	for i := range b.shards {
		b.shards[i].shard.timers.Flushed()
		b.shards[i].shard.outbox.Flushed()
	}
	m.flight = nil
	m.unlockLong()
	m.unflushed.Add(-b.bytes)
	m.durable.Flushed(b.Version, b.stored())
	clear(b.heads)
	clear(b.shards)
	b.meta, b.background = nil, batchBackground{}
	m.shrinkHeads()
}

// stored says how far the batch took each shard.
func (b *Batch) stored() []durable.Stored {
	b.told = b.told[:0]
	for i := range b.shards {
		w := &b.shards[i]
		b.told = append(b.told, durable.Stored{Shard: w.shard.id, Index: w.applied.Index, Generation: w.shard.generation})
	}
	for _, in := range b.background.of {
		b.told = append(b.told, durable.Stored{Shard: in.shard.id, Index: in.Index, Generation: in.shard.generation})
	}
	return b.told
}

// ease has rest called between parts of the batch, unless it carries a shard's
// generation, which somebody waits for.
func (b *Batch) ease(rest func(took time.Duration)) {
	if b.kvs.Pause = rest; len(b.background.pieces) > 0 {
		b.kvs.Pause = nil
	}
}

// Write encodes the batch and writes it to the store. After an error the
// process must end: what is in the store is not known.
func (b *Batch) Write(st *store.Store) error { return b.WriteTo(kv.Of(st)) }

// encodedAtOnce is after how many entities of a batch others that are ready to
// run come first: nobody waits for a batch.
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

// putRecords packs an entity's records, as many to a value as fit. What a load
// from a snapshot begins with begins a pack.
func (b *Batch) putRecords(w *headWrite) {
	sh := w.head.shard
	for first, before := w.first, w.before; first != nil; {
		end, size := first, store.PackRecordBytes(len(first.Raw))
		for end != w.last {
			if size += store.PackRecordBytes(len(end.Next.Raw)); size > b.pack || w.loadedFrom(end) {
				break
			}
			end = end.Next
		}
		if w.cutAway(end.At) {
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

// loadedFrom reports whether there is a snapshot of the entity as of the record
// after r: a load verifies it by that record, and reads on from there.
func (w *headWrite) loadedFrom(r *history.Record) bool {
	return r.Next.Seq > r.Seq && slices.Contains(w.state.Snapshots[:], r.Next.Seq)
}

func (b *Batch) putHead(w *headWrite) {
	key := append(b.prefix(w.head.shard, store.ClassEntity), w.head.key...)
	b.kvs.End(store.AppendHead(b.kvs.Begin(key), &w.state))
}

func (b *Batch) putApplied(w *shardWrite) {
	b.kvs.End(store.AppendApplied(b.kvs.Begin(b.prefix(w.shard, store.ClassApplied)), &w.applied))
}

// putOrder packs the rows of a shard's entries; an entry's rows stay together.
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
		// The level never falls: if a row has none, those before it have none.
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

// orderBytes is about the size of a record's row without its tags.
func orderBytes(r *history.Record) int { return int(r.KeyBytes) + 12 }

// putMeta writes the metadata pairs; of one key only the last counts.
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
