package eventlog

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/hostd/hostd/journal"
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
	keys   []string // of timers, and of what is known of sends

	view journal.RecordView
	kvs  store.Batch

	background batchBackground
}

// headWrite is an entity's records first..last and its head after them.
type headWrite struct {
	head        *head
	state       store.Head
	first, last *applied // nil when only the head has changed
	before      journal.Position
	snaps       []appliedSnapshot
	gone        []journal.Sequence // snapshots to delete
	cut         bool               // records have been cut since the batch before
}

// shardWrite is how far a shard is applied, and its records in order.
type shardWrite struct {
	shard   *shard
	applied store.Applied
	order   []*applied
	timers  map[string]timerChange
	post    map[string]postChange
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
	m.mu.Lock()
	defer m.mu.Unlock()
	b.heads, b.shards = b.heads[:0], b.shards[:0]
	for i, sh := range m.moved {
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
			h.pending, h.before = nil, h.last.at
		}
		b.heads = append(b.heads, w)
		h.listed, h.flying, m.dirty[i] = false, true, nil
	}
	m.dirty = m.dirty[:0]
	b.meta, m.meta = m.meta, nil
	m.takeBackground(b)
	b.bytes, b.pack = m.unflushed.Load(), m.opts.PackBytes
	b.Version, b.base = m.next, m.readAt
	m.next++
	m.flight = b
	return b
}

func (sh *shard) take() shardWrite {
	w := shardWrite{shard: sh, order: sh.order, timers: sh.timers.take(), post: sh.post.take(), before: sh.applied.Ordered}
	if n := len(sh.order); n > 0 {
		sh.applied.Ordered = sh.order[n-1].at.Index
	}
	w.applied = sh.applied
	sh.order, sh.moved = nil, false
	return w
}

// Pending reports whether there is something for a batch to take.
func (m *Machine) Pending() bool { return len(m.moved) > 0 || m.background.pending() }

// Flushed is told that the batch is in the store: its records leave the
// overlay. Readers that began before keep what they saw.
func (m *Machine) Flushed(b *Batch) {
	m.mu.Lock()
	m.readAt = b.Version
	m.flushedBackground(b)
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
		if h.first, h.base = w.last.next, w.last.at; h.first == nil {
			h.last = nil
		}
	}
	for i := range b.shards {
		b.shards[i].shard.timers.taken = nil
		b.shards[i].shard.post.taken = postLayer{}
	}
	m.flight = nil
	m.mu.Unlock()
	m.unflushed.Add(-b.bytes)
	m.durable.flushed(b)
	clear(b.heads)
	clear(b.shards)
	b.meta, b.background = nil, batchBackground{}
	m.shrinkHeads()
}

// ease has rest called between parts of the batch, unless it carries a shard's
// life, which somebody waits for.
func (b *Batch) ease(rest func(took time.Duration)) {
	if b.kvs.Rest = rest; len(b.background.pieces) > 0 {
		b.kvs.Rest = nil
	}
}

// Write encodes the batch and writes it to the store. After an error the
// process must end: what is in the store is not known.
func (b *Batch) Write(st *store.Store) error { return b.WriteTo(stored{st}) }

// encodedAtOnce is after how many entities of a batch others that are ready to
// run come first: nobody waits for a batch.
const encodedAtOnce = 64

// WriteTo is Write with any Store.
func (b *Batch) WriteTo(st Store) error {
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
		b.putTimers(&b.shards[i])
		b.putPost(&b.shards[i])
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
		end, size := first, store.PackRecordBytes(len(first.raw))
		for end != w.last {
			if size += store.PackRecordBytes(len(end.next.raw)); size > b.pack || w.loadedFrom(end) {
				break
			}
			end = end.next
		}
		if w.cutAway(end.at) {
			if end == w.last {
				return
			}
			first, before = end.next, end.at
			continue
		}
		key := append(b.prefix(sh, store.ClassRecord), w.head.key...)
		buf := b.kvs.Begin(store.AppendRecordSuffix(key, end.seq, end.at))
		buf = store.AppendPackStart(buf, before)
		for r := first; ; r = r.next {
			buf = store.AppendPackRecord(buf, r.at, r.raw)
			if r == end {
				break
			}
		}
		b.kvs.End(buf)
		if end == w.last {
			return
		}
		first, before = end.next, end.at
	}
}

// loadedFrom reports whether there is a snapshot of the entity as of the record
// after r: a load verifies it by that record, and reads on from there.
func (w *headWrite) loadedFrom(r *applied) bool {
	return r.next.seq > r.seq && slices.Contains(w.state.Snapshots[:], r.next.seq)
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
			if n > 0 && size > b.pack && order[n].at.Index != order[n-1].at.Index {
				break
			}
			n++
		}
		last := order[n-1].at.Index
		buf := b.kvs.Begin(store.AppendIndex(b.prefix(w.shard, store.ClassOrder), last))
		buf = store.AppendOrderStart(buf, before)
		for at := before; len(order) > 0 && n > 0; n-- {
			if err := b.view.Parse(order[0].raw); err != nil {
				return fmt.Errorf("flush event log: %w", err)
			}
			buf = store.AppendOrderRow(buf, at, order[0].at, &b.view)
			at = order[0].at.Index
			order = order[1:]
		}
		b.kvs.End(buf)
		before = last
	}
	return nil
}

// orderBytes is about the size of a record's row without its tags.
func orderBytes(r *applied) int { return len(r.head.key) + 8 }

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
