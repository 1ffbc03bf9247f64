package eventlog

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/hostd/hostd/sharding"
)

// Marks that share a version never report more than was durable, and in the end
// report everything.
func TestCoarseMarksAreNeverEarly(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var d durableIndexes
	d.Open(0)
	d.Ready(0)
	applied := make(map[sharding.ShardID]uint64)
	var history []map[sharding.ShardID]uint64
	for version := uint64(1); version <= 500; version++ {
		var stored []storedIndex
		for range 1 + rng.IntN(3) {
			id := sharding.ShardID(rng.IntN(5))
			applied[id] += 1 + rng.Uint64N(3)
			stored = append(stored, storedIndex{Shard: id, Index: applied[id]})
		}
		d.MarkFlushed(version, stored)
		history = append(history, maps.Clone(applied))
		if version%100 == 50 {
			d.coarsen()
		}
		if version%70 == 0 {
			d.take(version - rng.Uint64N(60))
			for id, index := range d.indexes {
				if stored := history[d.reported-1][id]; index > stored {
					t.Fatalf("as of %d shard %d is durable to %d, not %d", d.reported, id, stored, index)
				}
			}
		}
	}
	if len(d.marks) == 0 || d.step == 1 {
		t.Fatal("nothing was left to coarsen")
	}
	d.take(500 + d.step)
	if !maps.Equal(d.indexes, applied) || len(d.marks) != 0 {
		t.Fatalf("in the end %v, applied %v", d.indexes, applied)
	}
}
