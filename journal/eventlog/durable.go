package eventlog

import (
	"math"
	"sync"

	"github.com/hostd/hostd/sharding"
)

// durability knows which index of each shard is durable as of a watermark.
// Flushed batches leave a mark for each shard they touched; marks at or below
// the watermark move into the indexes. So the cost is that of what was
// touched, not of the number of shards.
type durability struct {
	mu      sync.Mutex
	from    uint64 // below it the watermark of the store does not count
	told    uint64 // the answer of the last call, 0 before the first
	indexes map[sharding.ShardID]uint64
	lives   map[sharding.ShardID]uint32 // the generation that counts
	marks   []mark
	step    uint64 // versions are rounded up to a multiple of it
}

type mark struct {
	version uint64
	shard   sharding.ShardID
	index   uint64

	generation uint32
}

// maxMarks bounds the marks kept apart; over it neighbouring versions share
// one, which makes a watermark count a little later.
const maxMarks = 1 << 16

func (d *durability) open(watermark uint64) {
	d.told, d.step = watermark, 1
	d.indexes, d.lives = make(map[sharding.ShardID]uint64), make(map[sharding.ShardID]uint32)
	d.from = math.MaxUint64
}

func (d *durability) set(id sharding.ShardID, index uint64) { d.indexes[id] = index }

// begin is told that from now on only the generation counts: what an earlier
// life of the shard had is not durable in it.
func (d *durability) begin(id sharding.ShardID, generation uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now, ok := d.lives[id]; ok && generation <= now {
		return
	}
	d.lives[id] = generation
	delete(d.indexes, id)
}

// ready: versions up to from may be a crash's remains.
func (d *durability) ready(from uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.from = from
}

func (d *durability) flushed(b *Batch) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range b.shards {
		w := &b.shards[i]
		d.marks = append(d.marks, mark{d.round(b.Version), w.shard.id, w.applied.Index, w.shard.generation})
	}
	for _, in := range b.background.of {
		d.marks = append(d.marks, mark{d.round(b.Version), in.shard.id, in.Index, in.shard.generation})
	}
	for len(d.marks) > maxMarks && d.step < 1<<40 {
		d.coarsen()
	}
}

func (d *durability) round(version uint64) uint64 {
	return (version + d.step - 1) / d.step * d.step
}

// coarsen doubles the step and keeps one mark for each version and shard.
func (d *durability) coarsen() {
	d.step *= 2
	seen := make(map[mark]int)
	kept := d.marks[:0]
	for _, m := range d.marks {
		m.version = d.round(m.version)
		k := mark{version: m.version, shard: m.shard, generation: m.generation}
		if i, ok := seen[k]; ok {
			kept[i].index = m.index
			continue
		}
		seen[k] = len(kept)
		kept = append(kept, m)
	}
	d.marks = kept
}

// Durable fills dst with the highest raft index of each shard whose effects
// survive a power cut as of the returned watermark. Before it is called again
// the caller has made the watermark of the call before durable in its log, or
// has stopped: from then on a restart begins no earlier, and the store may
// forget what was overwritten until there.
func (m *Machine) Durable(dst map[sharding.ShardID]uint64) (watermark uint64) {
	recorded, watermark := m.durable.read(m.st, dst)
	m.st.SetDiscard(recorded)
	return watermark
}

func (d *durability) read(st Store, dst map[sharding.ShardID]uint64) (recorded, watermark uint64) {
	w := st.Watermark()
	d.mu.Lock()
	defer d.mu.Unlock()
	recorded = d.told
	d.take(w)
	for id, index := range d.indexes {
		dst[id] = index
	}
	return recorded, d.told
}

// take moves the marks up to the store's watermark into the indexes.
func (d *durability) take(w uint64) {
	if w < d.from || w <= d.told {
		return
	}
	n := 0
	for n < len(d.marks) && d.marks[n].version <= w {
		if m := &d.marks[n]; m.generation == d.lives[m.shard] {
			d.indexes[m.shard] = m.index
		}
		n++
	}
	d.marks = append(d.marks[:0], d.marks[n:]...)
	d.told = w
}
