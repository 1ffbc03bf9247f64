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
	// maxPieceBytes limits the keys and values that wait for the next batch; it
	// may be exceeded by one piece.
	maxPieceBytes = 1 << 20
	// garbageKeys is the number of keys deleted at a time.
	garbageKeys = 2048
)

// background is work on whole generations of shards: installing snapshots and
// deleting dropped generations. It is done in bounded pieces, between entries,
// and uses the same batches as everything else:
//
//	reading ─▶ pieces ─▶ Batch ─▶ written ─▶ the shard's generation starts
//	garbage ─▶ pieces ─▶ Batch
//	reading ─▶ pieces ─▶ Batch ─▶ written ─▶ the shard's generation begins
//	garbage ─▶ pieces ─▶ Batch
type background struct {
	reading []*install
	garbage []garbage
	pieces  []piece
	bytes   int64      // size of pieces
	ending  []*install // read completely, with the last part still in pieces
	landed  []*install // completely in the store, but not current yet
	// ended means that a generation has ended. The next batch must then account
	// for that generation's changes in flight, even if it contains nothing else.
	ended   bool
	waiting atomic.Int64
}

// garbage is a generation that is no longer read. Its keys, starting at next,
// are deleted once version after is in the store, because a batch that was in
// flight when the generation ended writes to the generation at an earlier
// version.
type garbage struct {
	shard      sharding.ShardID
	generation uint32
	after      uint64
	next       []byte
}

// piece is a key-value pair of a generation, a chunk of such pairs, or a key to
// delete.
type piece struct {
	shard      sharding.ShardID
	generation uint32
	key, value []byte // key without its generation, unless delete is set
	delete     bool
}

func (p *piece) put(b *store.Batch) {
	if p.delete {
		b.Delete(p.key)
		return
	}
	b.Put(append(store.AppendGeneration(b.Key(), p.shard, p.generation), p.key...), p.value)
}

func (p *piece) bytes() int64 { return int64(len(p.key)+len(p.value)) + memtableRecordBytes }

func (g *background) add(p piece) {
	g.pieces = append(g.pieces, p)
	g.bytes += p.bytes()
}

// batchBackground is the part of a batch for whole generations.
type batchBackground struct {
	pieces []piece
	of     []*install // installs that end in these pieces
	// metaGeneration is the generation of shard 0 that the metadata pairs
	// belong to.
	metaGeneration uint32
}

// take passes the pieces to a batch.
func (g *background) take() batchBackground {
	b := batchBackground{pieces: g.pieces, of: g.ending}
	g.pieces, g.ending, g.bytes, g.ended = nil, nil, 0, false
	return b
}

// markFlushed must be called when the pieces of a batch are in the store.
func (g *background) markFlushed(b *batchBackground) { g.landed = append(g.landed, b.of...) }

func (g *background) full() bool { return g.bytes >= maxPieceBytes }

// close closes unfinished snapshots; the log still has them.
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

// Step is the outcome of a piece of background work.
type Step struct {
	// Results of entries that waited for their shard's snapshot.
	Verdicts []ApplyResult
	// Installed is set if a shard's generation has started from a snapshot.
	Installed *Installed
}

// Installed reports that a shard's state was replaced by a snapshot. If Err is
// set, the shard has stopped instead, because only a later release can read the
// snapshot, and the metadata state machine (for shard 0) still has the previous
// state.
type Installed struct {
	Shard sharding.ShardID
	Index uint64
	Term  sharding.Term
	Clock int64
	Err   *StoppedError
}

// HasWork reports whether Work has something to do now.
func (m *Machine) HasWork() bool {
	g := &m.background
	if len(g.landed) > 0 {
		return true
	}
	return m.failed == nil && !g.full() && (len(g.reading) > 0 || g.deletableGarbage(m.readAt) >= 0)
}

// deletableGarbage returns the index of garbage that may be deleted once the
// store has the version, -1 if there is none.
func (g *background) deletableGarbage(version uint64) int {
	return slices.IndexFunc(g.garbage, func(o garbage) bool { return o.after <= version })
}

// Work does a bounded piece of background work. It may only be called by the
// applying goroutine. If the Machine fails, Err is set.
func (m *Machine) Work() (s Step) {
	g := &m.background
	switch i := g.deletableGarbage(m.readAt); {
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

// awaitInstall keeps entries until the shard's snapshot is installed.
func (g *background) awaitInstall(in *install, entries []journal.Committed) {
	for i := range entries {
		g.waiting.Add(int64(len(entries[i].Data)) + memtableRecordBytes)
	}
	in.waiting = append(in.waiting, entries...)
}

// release returns the entries that waited for the snapshot.
func (g *background) release(in *install) []journal.Committed {
	out := in.waiting
	for i := range out {
		g.waiting.Add(-int64(len(out[i].Data)) - memtableRecordBytes)
	}
	in.waiting = nil
	return out
}

// Waiting returns the size of the entries that wait for a snapshot of their
// shard.
func (m *Machine) Waiting() int64 { return m.background.waiting.Load() }
