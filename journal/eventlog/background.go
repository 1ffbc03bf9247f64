package eventlog

import (
	"slices"
	"sync/atomic"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

const (
	// maxPieceBytes of keys and values wait for the next batch, and one piece
	// more.
	maxPieceBytes = 1 << 20
	// garbageKeys are deleted at a time.
	garbageKeys = 2048
)

// background is work on whole lives of shards: snapshots that are read in, and
// dropped lives that are deleted. It is done a bounded piece at a time, between
// entries, through the batches that carry everything else:
//
//	reading ─▶ pieces ─▶ Batch ─▶ written ─▶ the shard's life begins
//	garbage ─▶ pieces ─▶ Batch
type background struct {
	reading []*install
	garbage []garbage
	pieces  []piece
	bytes   int64      // of pieces
	ending  []*install // read to their end, the last of it in pieces
	landed  []*install // in the store
	// ended: a life has, and the next batch accounts for what it had on its
	// way to the store, even if there is nothing else in it.
	ended   bool
	waiting atomic.Int64
}

// garbage is a generation that nobody reads: its keys are deleted, those from
// next on, once the version after is in the store. What a batch that was on
// its way wrote of it is in a version before that.
type garbage struct {
	shard      sharding.ShardID
	generation uint32
	after      uint64
	next       []byte
}

// piece is a pair of some life, or a chunk of them, or a key to be deleted.
type piece struct {
	shard      sharding.ShardID
	generation uint32
	key, value []byte // the key without its life, unless delete is set
	delete     bool
}

func (p *piece) put(b *store.Batch) {
	if p.delete {
		b.Delete(p.key)
		return
	}
	b.Put(append(store.AppendLife(b.Key(), p.shard, p.generation), p.key...), p.value)
}

func (p *piece) bytes() int64 { return int64(len(p.key)+len(p.value)) + overlayBytes }

func (g *background) add(p piece) {
	g.pieces = append(g.pieces, p)
	g.bytes += p.bytes()
}

// batchBackground is the part of a batch that is about whole lives.
type batchBackground struct {
	pieces []piece
	of     []*install // those that end in the pieces
	// metaGeneration is that of shard 0, of which the metadata pairs are.
	metaGeneration uint32
}

// takeBackground is called with the lock held.
func (m *Machine) takeBackground(b *Batch) {
	g := &m.background
	b.background = batchBackground{pieces: g.pieces, of: g.ending}
	if sh := m.shards[sharding.MetaShard]; sh != nil {
		b.background.metaGeneration = sh.generation
	}
	g.pieces, g.ending, g.bytes, g.ended = nil, nil, 0, false
}

// flushedBackground is called with the lock held.
func (m *Machine) flushedBackground(b *Batch) {
	for i := range b.shards {
		b.shards[i].shard.flushed = b.shards[i].applied
	}
	m.background.landed = append(m.background.landed, b.background.of...)
}

func (g *background) full() bool { return g.bytes >= maxPieceBytes }

// close lets go of the snapshots that are not read to their end: they are in
// the log.
func (g *background) close() {
	for _, in := range g.reading {
		in.close()
	}
}

func (g *background) pending() bool { return g.ended || len(g.pieces) > 0 }

func (b *Batch) putPieces() {
	for i := range b.background.pieces {
		b.background.pieces[i].put(&b.kvs)
	}
}

// Step is what a piece of background work led to.
type Step struct {
	// Verdicts of entries that waited for their shard's snapshot.
	Verdicts []Verdict
	// Installed is set when a shard's life has begun with a snapshot.
	Installed *Installed
}

// Installed says that a shard's state was replaced.
type Installed struct {
	Shard sharding.ShardID
	Index uint64
	Term  sharding.Term
	Clock int64
}

// Working says whether Work has something to do now.
func (m *Machine) Working() bool {
	g := &m.background
	if len(g.landed) > 0 {
		return true
	}
	return m.failed == nil && !g.full() && (len(g.reading) > 0 || m.ripe() >= 0)
}

// ripe is the garbage that may be deleted now, -1 for none.
func (m *Machine) ripe() int {
	return slices.IndexFunc(m.background.garbage, func(g garbage) bool { return g.after <= m.readAt })
}

// Work does a bounded piece of background work. It is for the applying
// goroutine. It may fail the Machine, see Failed.
func (m *Machine) Work() (s Step) {
	g := &m.background
	switch i := m.ripe(); {
	case m.failed != nil:
	case len(g.landed) > 0:
		in := g.landed[0]
		g.landed = slices.Delete(g.landed, 0, 1)
		s = m.begin(in)
	case g.full():
	case len(g.reading) > 0:
		if err := m.readChunk(g.reading[0]); err != nil {
			m.failed = err
		}
	case i >= 0:
		if err := m.sweep(i); err != nil {
			m.failed = err
		}
	}
	return s
}

// sweep deletes some keys of a generation.
func (m *Machine) sweep(i int) error {
	g := &m.background.garbage[i]
	view, err := m.st.ViewAt(m.readAt)
	if err != nil {
		return err
	}
	defer view.Close()
	var size int64
	var last []byte
	more, err := view.ScanKeys(store.LifePrefix(g.shard, g.generation), g.next, garbageKeys, func(key []byte) {
		last = slices.Clone(key)
		p := piece{key: last, delete: true}
		size += p.bytes()
		m.background.add(p)
	})
	m.unflushed.Add(size)
	if err != nil || !more {
		m.background.garbage = slices.Delete(m.background.garbage, i, i+1)
		return err
	}
	g.next = append(last, 0)
	return nil
}

// hold keeps entries for after the shard's snapshot.
func (m *Machine) hold(in *install, entries []journal.Committed) {
	for i := range entries {
		m.background.waiting.Add(int64(len(entries[i].Data)) + overlayBytes)
	}
	in.waiting = append(in.waiting, entries...)
}

// release returns what waited for the snapshot.
func (g *background) release(in *install) []journal.Committed {
	out := in.waiting
	for i := range out {
		g.waiting.Add(-int64(len(out[i].Data)) - overlayBytes)
	}
	in.waiting = nil
	return out
}

// Waiting is the size of the entries that wait for a snapshot of their shard.
func (m *Machine) Waiting() int64 { return m.background.waiting.Load() }
