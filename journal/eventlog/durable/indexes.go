// Package durable knows which index of each shard's log survives a power cut:
// what flushed batches held, as of a watermark of the store. It looks at no
// store and has no goroutine.
package durable

import (
	"math"
	"sync"

	"github.com/hostd/hostd/sharding"
)

// Indexes are the durable indexes of shards. Flushed batches leave a mark for
// each shard they touched; marks at or below the watermark move into the
// indexes. So the cost is that of what was touched, not of the number of shards.
// Its methods may be called from any goroutine.
type Indexes struct {
	mu          sync.Mutex
	from        uint64 // below it the watermark of the store does not count
	told        uint64 // the answer of the last call, 0 before the first
	indexes     map[sharding.ShardID]uint64
	generations map[sharding.ShardID]uint32 // the one that counts
	marks       []mark
	step        uint64 // versions are rounded up to a multiple of it
}

// Stored says how far a batch took a generation of a shard.
type Stored struct {
	Shard      sharding.ShardID
	Index      uint64
	Generation uint32
}

// mark says how far the batch of one version took a generation.
type mark struct {
	version uint64
	Stored
}

// maxMarks bounds the marks kept apart; over it neighbouring versions share
// one, which makes a watermark count a little later.
const maxMarks = 1 << 16

// Open begins with the watermark that the log recorded. Until Ready no other
// counts.
func (d *Indexes) Open(watermark uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told, d.step = watermark, 1
	d.indexes, d.generations = make(map[sharding.ShardID]uint64), make(map[sharding.ShardID]uint32)
	d.from = math.MaxUint64
}

// Set is told how far the store holds a shard as of the watermark of Open.
func (d *Indexes) Set(id sharding.ShardID, index uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.indexes[id] = index
}

// Begin is told that from now on only the generation counts: what an earlier
// one of the shard had is not durable in it.
func (d *Indexes) Begin(id sharding.ShardID, generation uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now, ok := d.generations[id]; ok && generation <= now {
		return
	}
	d.generations[id] = generation
	delete(d.indexes, id)
}

// Ready is told that versions up to from may be a crash's remains.
func (d *Indexes) Ready(from uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.from = from
}

// Flushed is told that a batch is in the store, and what it held.
func (d *Indexes) Flushed(version uint64, stored []Stored) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range stored {
		d.marks = append(d.marks, mark{d.round(version), s})
	}
	for len(d.marks) > maxMarks && d.step < 1<<40 {
		d.coarsen()
	}
}

func (d *Indexes) round(version uint64) uint64 {
	return (version + d.step - 1) / d.step * d.step
}

// coarsen doubles the step and keeps one mark for each version and shard.
func (d *Indexes) coarsen() {
	d.step *= 2
	seen := make(map[mark]int)
	kept := d.marks[:0]
	for _, m := range d.marks {
		m.version = d.round(m.version)
		k := mark{m.version, Stored{Shard: m.Shard, Generation: m.Generation}}
		if i, ok := seen[k]; ok {
			kept[i].Index = m.Index
			continue
		}
		seen[k] = len(kept)
		kept = append(kept, m)
	}
	d.marks = kept
}

// Read fills dst with the highest index of each shard that is durable as of the
// watermark it returns, given that of the store. recorded is the watermark that
// it returned the last time.
func (d *Indexes) Read(watermark uint64, dst map[sharding.ShardID]uint64) (recorded, asOf uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	recorded = d.told
	d.take(watermark)
	for id, index := range d.indexes {
		dst[id] = index
	}
	return recorded, d.told
}

// take moves the marks up to the store's watermark into the indexes.
func (d *Indexes) take(w uint64) {
	if w < d.from || w <= d.told {
		return
	}
	n := 0
	for n < len(d.marks) && d.marks[n].version <= w {
		if m := &d.marks[n]; m.Generation == d.generations[m.Shard] {
			d.indexes[m.Shard] = m.Index
		}
		n++
	}
	d.marks = append(d.marks[:0], d.marks[n:]...)
	d.told = w
}
