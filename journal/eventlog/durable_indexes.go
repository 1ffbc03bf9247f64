package eventlog

import (
	"math"
	"sync"

	"github.com/hostd/hostd/sharding"
)

// durableIndexes tracks up to which log index each shard survives a power
// failure: the last index in the flushed batches up to the store's watermark. A
// flushed batch leaves a mark for each shard that it touched; marks at or below
// the watermark move into the indexes. So the cost depends on the number of
// touched shards, not on the total number of shards. It does not access a
// store, and is safe for concurrent use.
type durableIndexes struct {
	mu          sync.Mutex
	from        uint64 // durable versions of the store below this version do not count
	reported    uint64 // result of the last call of Read, 0 before the first call
	indexes     map[sharding.ShardID]uint64
	generations map[sharding.ShardID]uint32 // current generations
	marks       []durableMark
	step        uint64 // versions are rounded up to a multiple of step
}

// storedIndex is the index up to which a batch contains a generation of a
// shard.
type storedIndex struct {
	Shard      sharding.ShardID
	Index      uint64
	Generation uint32
}

// durableMark is the index up to which the batch of a version contains a
// generation.
type durableMark struct {
	version uint64
	storedIndex
}

// maxDurableMarks limits the marks. If it is exceeded, neighbouring versions
// share a mark, so that a watermark takes effect slightly later.
const maxDurableMarks = 1 << 16

// Open starts with the watermark recorded in the log. No other watermark is
// used until Ready is called.
func (d *durableIndexes) Open(watermark uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reported, d.step = watermark, 1
	d.indexes, d.generations = make(map[sharding.ShardID]uint64), make(map[sharding.ShardID]uint32)
	d.from = math.MaxUint64
}

// Set sets the index up to which the store has a shard as of the watermark
// passed to Open.
func (d *durableIndexes) Set(id sharding.ShardID, index uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.indexes[id] = index
}

// Begin makes a generation current. Indexes of earlier generations no longer
// count as durable.
func (d *durableIndexes) Begin(id sharding.ShardID, generation uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now, ok := d.generations[id]; ok && generation <= now {
		return
	}
	d.generations[id] = generation
	delete(d.indexes, id)
}

// Ready declares that versions up to from may be left over from a crash.
func (d *durableIndexes) Ready(from uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.from = from
}

// MarkFlushed records the indexes of a batch that is now in the store.
func (d *durableIndexes) MarkFlushed(version uint64, stored []storedIndex) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range stored {
		d.marks = append(d.marks, durableMark{d.round(version), s})
	}
	for len(d.marks) > maxDurableMarks && d.step < 1<<40 {
		d.coarsen()
	}
}

func (d *durableIndexes) round(version uint64) uint64 {
	return (version + d.step - 1) / d.step * d.step
}

// coarsen doubles the step and keeps one mark for each version and shard.
func (d *durableIndexes) coarsen() {
	d.step *= 2
	seen := make(map[durableMark]int)
	kept := d.marks[:0]
	for _, m := range d.marks {
		m.version = d.round(m.version)
		k := durableMark{m.version, storedIndex{Shard: m.Shard, Generation: m.Generation}}
		if i, ok := seen[k]; ok {
			kept[i].Index = m.Index
			continue
		}
		seen[k] = len(kept)
		kept = append(kept, m)
	}
	d.marks = kept
}

// Read sets dst to the highest durable index of each shard as of asOf, which is
// the store's watermark or an earlier version. recorded is the asOf of the
// previous call, which the caller has written to its log by now.
func (d *durableIndexes) Read(watermark uint64, dst map[sharding.ShardID]uint64) (recorded, asOf uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	recorded = d.reported
	d.take(watermark)
	for id, index := range d.indexes {
		dst[id] = index
	}
	return recorded, d.reported
}

// take moves the marks up to the store's watermark into the indexes.
func (d *durableIndexes) take(w uint64) {
	if w < d.from || w <= d.reported {
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
	d.reported = w
}
