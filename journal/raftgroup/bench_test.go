package raftgroup

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// instant is a state machine that discards its input and reports it as durable.
type instant struct {
	mu      sync.Mutex
	applied map[sharding.ShardID]uint64
	mark    uint64
	done    func(n int)
}

func (m *instant) Apply(shard sharding.ShardID, entries []journal.Committed) {
	m.mu.Lock()
	m.applied[shard] = entries[len(entries)-1].Index
	m.mu.Unlock()
	n := 0
	for _, e := range entries {
		if len(e.Data) > 0 {
			n++
		}
	}
	m.done(n)
}

func (m *instant) Backlog() int64 { return 0 }

func (m *instant) Durable(dst map[sharding.ShardID]uint64) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, i := range m.applied {
		dst[s] = i
	}
	m.mark++
	return m.mark
}

// BenchmarkGroupOfOne proposes 150 bytes to single-replica groups on the real
// log and disk, with 256 proposals outstanding.
func BenchmarkGroupOfOne(b *testing.B) {
	for _, groups := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) { benchmarkGroupOfOne(b, groups, 256) })
	}
}

func benchmarkGroupOfOne(b *testing.B, groups, outstanding int) {
	log, err := wal.Open(disk.OS{}, b.TempDir(), wal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	rec, err := recovery.Recover(log)
	if err != nil {
		b.Fatal(err)
	}
	slots := make(chan struct{}, outstanding)
	var committed atomic.Int64
	m := &instant{applied: map[sharding.ShardID]uint64{}, done: func(n int) {
		committed.Add(int64(n))
		for range n {
			<-slots
		}
	}}
	s := newSink()
	loop, err := Start(rec, Options{Log: log, Machine: m, Sink: s})
	if err != nil {
		b.Fatal(err)
	}
	var configs []GroupConfig
	for i := range groups {
		configs = append(configs, one(sharding.ShardID(i+1))...)
	}
	if err := loop.CreateGroups(configs); err != nil {
		b.Fatal(err)
	}
	terms := make([]sharding.Term, groups)
	for i := range terms {
		for !s.leader(sharding.ShardID(i + 1)).Self {
			time.Sleep(time.Millisecond)
		}
		terms[i] = s.leader(sharding.ShardID(i + 1)).Term
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		slots <- struct{}{}
		g := i % groups
		if err := loop.Propose(sharding.ShardID(g+1), terms[g], uint64(i), make([]byte, 150)); err != nil {
			b.Fatal(err)
		}
	}
	for committed.Load() < int64(b.N) {
		time.Sleep(10 * time.Microsecond)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "proposals/s")
	if drops := s.drops(); len(drops) > 0 {
		b.Fatal(drops[0])
	}
	if err := loop.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/float64(log.Stats().Syncs), "proposals/sync")
	log.Close()
}
