package eventlog

import (
	"errors"
	"slices"
	"sync/atomic"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
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

// background is work on whole generations of shards: snapshots that are read
// in, and dropped generations that are deleted. It is done a bounded piece at a
// time, between entries, through the batches that carry everything else:
//
//	reading ─▶ pieces ─▶ Batch ─▶ written ─▶ the shard's generation begins
//	garbage ─▶ pieces ─▶ Batch
type background struct {
	reading []*install
	garbage []garbage
	pieces  []piece
	bytes   int64      // of pieces
	ending  []*install // read to their end, the last of it in pieces
	landed  []*install // in the store
	// ended: a generation has, and the next batch accounts for what it had on
	// its way to the store, even if there is nothing else in it.
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

// piece is a pair of some generation, or a chunk of them, or a key to be
// deleted.
type piece struct {
	shard      sharding.ShardID
	generation uint32
	key, value []byte // the key without its generation, unless delete is set
	delete     bool
}

func (p *piece) put(b *store.Batch) {
	if p.delete {
		b.Delete(p.key)
		return
	}
	b.Put(append(store.AppendGeneration(b.Key(), p.shard, p.generation), p.key...), p.value)
}

func (p *piece) bytes() int64 { return int64(len(p.key)+len(p.value)) + overlayBytes }

func (g *background) add(p piece) {
	g.pieces = append(g.pieces, p)
	g.bytes += p.bytes()
}

// batchBackground is the part of a batch that is about whole generations.
type batchBackground struct {
	pieces []piece
	of     []*install // those that end in the pieces
	// metaGeneration is that of shard 0, of which the metadata pairs are.
	metaGeneration uint32
}

// take hands the pieces to a batch.
func (g *background) take() batchBackground {
	b := batchBackground{pieces: g.pieces, of: g.ending}
	g.pieces, g.ending, g.bytes, g.ended = nil, nil, 0, false
	return b
}

// flushed is told that what was taken is in the store.
func (g *background) flushed(b *batchBackground) { g.landed = append(g.landed, b.of...) }

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
	// Installed is set when a shard's generation has begun with a snapshot.
	Installed *Installed
}

// Installed says that a shard's state was replaced, or, with Err, that the
// shard has stopped because only a later release can read the snapshot: then
// the metadata machine, for shard 0, has its state from before.
type Installed struct {
	Shard sharding.ShardID
	Index uint64
	Term  sharding.Term
	Clock int64
	Err   *StoppedError
}

// Working says whether Work has something to do now.
func (m *Machine) Working() bool {
	g := &m.background
	if len(g.landed) > 0 {
		return true
	}
	return m.failed == nil && !g.full() && (len(g.reading) > 0 || g.ripe(m.readAt) >= 0)
}

// ripe is the garbage that may be deleted once the store has a version, -1 for
// none.
func (g *background) ripe(version uint64) int {
	return slices.IndexFunc(g.garbage, func(o garbage) bool { return o.after <= version })
}

// Work does a bounded piece of background work. It is for the applying
// goroutine. It may fail the Machine, see Failed.
func (m *Machine) Work() (s Step) {
	g := &m.background
	switch i := g.ripe(m.readAt); {
	case m.failed != nil:
	case len(g.landed) > 0:
		in := g.landed[0]
		g.landed = slices.Delete(g.landed, 0, 1)
		s = m.begin(in)
	case g.full():
	case len(g.reading) > 0:
		in := g.reading[0]
		if err := m.readChunk(in); errors.Is(err, journal.ErrUnsupported) {
			s = m.stopInstall(in, err)
		} else {
			m.failed = err
		}
	case i >= 0:
		m.failed = m.sweep(i)
	}
	return s
}

// sweep deletes some keys of a generation.
func (m *Machine) sweep(i int) error {
	view, err := m.view()
	if err != nil {
		return err
	}
	defer view.Close()
	before := m.background.bytes
	err = m.background.sweep(i, view)
	m.unflushed.Add(m.background.bytes - before)
	return err
}

func (g *background) sweep(i int, view kv.View) error {
	of := &g.garbage[i]
	var last []byte
	more, err := view.ScanKeys(store.GenerationPrefix(of.shard, of.generation), of.next, garbageKeys, func(key []byte) {
		last = slices.Clone(key)
		g.add(piece{key: last, delete: true})
	})
	if err != nil || !more {
		g.garbage = slices.Delete(g.garbage, i, i+1)
		return err
	}
	of.next = append(last, 0)
	return nil
}

// awaitInstall keeps entries for after the shard's snapshot.
func (g *background) awaitInstall(in *install, entries []journal.Committed) {
	for i := range entries {
		g.waiting.Add(int64(len(entries[i].Data)) + overlayBytes)
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
