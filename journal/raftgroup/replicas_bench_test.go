package raftgroup

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
)

// noLog discards records, so that the benchmark measures everything else.
type noLog struct{ at wal.Position }

func (l *noLog) Replay(func(wal.Position, byte, []byte) error) error { return nil }

func (l *noLog) Append(_ byte, payload ...[]byte) (wal.Position, error) {
	at := l.at
	for _, p := range payload {
		l.at.Offset += int64(len(p))
	}
	return at, nil
}

func (l *noLog) Sync() (wal.Position, error)               { return l.at, nil }
func (l *noLog) SetCheckpoint(func([]byte) []byte)         {}
func (l *noLog) Release(wal.Position) (freed int, e error) { return 0, nil }
func (l *noLog) Tail() wal.Position                        { return l.at }
func (l *noLog) SyncMark() error                           { return nil }

// BenchmarkCommands measures the cost of an entry with one command of 150 bytes
// on all replicas together, without log, network and state machine. Each turn
// has one entry in each group, and the log is truncated regularly.
func BenchmarkCommands(b *testing.B) {
	for _, replicas := range []int{1, 3} {
		for _, groups := range []int{16, 256} {
			b.Run(fmt.Sprintf("replicas=%d/groups=%d", replicas, groups), func(b *testing.B) { benchmarkCommands(b, replicas, groups) })
		}
	}
}

func benchmarkCommands(b *testing.B, replicas, groups int) {
	d := &drill{t: b, cut: map[[2]int]bool{}}
	for i := range replicas {
		m := &instant{applied: map[sharding.ShardID]uint64{}, done: func(int) {}}
		n := &drilled{d: d, i: i, up: true, sink: newSink(), last: make([]int, replicas)}
		var err error
		n.driver, err = NewDriver(&recovery.Recovered{}, Options{Self: d.name(i), Log: &noLog{at: wal.Position{Segment: 1}}, Machine: m, Sink: n.sink, Transport: n, Placement: placement{locate: n.locate}, MaxReads: 1})
		if err != nil {
			b.Fatal(err)
		}
		d.nodes = append(d.nodes, n)
	}
	d.fill(groups)
	d.until("leaders", 60, func() bool { return d.led(groups) })
	leaders, terms := make([]*drilled, groups+1), make([]sharding.Term, groups+1)
	for s := 1; s <= groups; s++ {
		leaders[s] = d.leader(s)
		terms[s] = leaders[s].sink.leader(sharding.ShardID(s)).Term
	}
	d.settle()
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; {
		for s := 1; s <= groups && i < b.N; s++ {
			if err := leaders[s].driver.Core().Propose(sharding.ShardID(s), terms[s], uint64(i), make([]byte, 150)); err != nil {
				b.Fatal(err)
			}
			i++
		}
		d.settle()
		if i/groups%64 == 0 {
			d.beat()
		}
	}
	b.StopTimer()
	for _, n := range d.nodes {
		if drops := n.sink.drops(); len(drops) > 0 {
			b.Fatal(drops[0])
		}
	}
}
