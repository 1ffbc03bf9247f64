package eventlog_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// BenchmarkApplySteps applies entries that do as much work as an entry may, and
// reports the time of the slowest entry.
func BenchmarkApplySteps(b *testing.B) {
	for _, step := range []struct {
		name string
		// entries returns the entries to apply before the measurement, and the
		// entries to measure.
		entries func(chain *journal.Chain) (before, measured [][]byte)
	}{
		{"delete 10,000 timers", func(chain *journal.Chain) (before, measured [][]byte) {
			set := benchTimers(10_000)
			gone := record("a", 0, chain.After(&set), 0)
			gone.Flags = journal.FlagTombstone
			measured = append(measured, benchEntry(&gone))
			for range 40 {
				measured = append(measured, journal.AppendPacedHeader(nil, sharding.VersionPacedWork, journal.EntryWork, 1, 1))
			}
			return [][]byte{benchEntry(&set)}, measured
		}},
		{"change 640 timers that are stored", func(chain *journal.Chain) (before, measured [][]byte) {
			set, again := benchTimers(640), benchTimers(640)
			again.Expected, again.Prev = 0, chain.After(&set)
			for range 2 {
				measured = append(measured, benchEntry(&again))
				again.Prev = chain.After(&again)
			}
			return [][]byte{benchEntry(&set)}, measured
		}},
		{"truncate records of 64 KiB", func(chain *journal.Chain) (before, measured [][]byte) {
			var last journal.Record
			for i := range 128 {
				r := record("a", journal.Sequence(i), chain.After(&last), 1)
				if i == 0 {
					r.Prev = journal.Hash{}
				}
				r.Events[0].Payload = bytes.Repeat([]byte{'x'}, 64<<10)
				before, last = append(before, benchEntry(&r)), r
			}
			snap := journal.Snapshot{Entity: last.Entity, Sequence: 128, Hash: chain.After(&last), Window: 128, Keep: 1, Retain: 1, State: []byte("s")}
			measured = append(measured, journal.AppendSnapshot(journal.AppendPacedHeader(nil, sharding.VersionPacedWork, journal.EntrySnapshot, 1, 1), &snap))
			for range 30 {
				measured = append(measured, journal.AppendPacedHeader(nil, sharding.VersionPacedWork, journal.EntryWork, 1, 1))
			}
			return before, measured
		}},
	} {
		b.Run(step.name, func(b *testing.B) {
			longest := time.Duration(0)
			for b.Loop() {
				b.StopTimer()
				st, err := store.Open(b.TempDir(), store.Options{})
				if err != nil {
					b.Fatal(err)
				}
				m, err := eventlog.Open(st, 0, eventlog.Options{})
				if err != nil {
					b.Fatal(err)
				}
				index := uint64(0)
				apply := func(data []byte) time.Duration {
					index++
					begin := time.Now()
					v := apply1(m, 1, journal.Committed{Index: index, Term: 1, Data: data})
					took := time.Since(begin)
					if v.Err != nil {
						b.Fatal(v.Err)
					}
					if batch := m.TakeBatch(); batch != nil {
						if err := batch.Write(st); err != nil {
							b.Fatal(err)
						}
						m.MarkFlushed(batch)
					}
					return took
				}
				before, measured := step.entries(&journal.Chain{})
				for _, data := range before {
					apply(data)
				}
				b.StartTimer()
				for _, data := range measured {
					longest = max(longest, apply(data))
				}
				b.StopTimer()
				if err := st.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		})
	}
}

func benchTimers(n int) journal.Record {
	var ops []byte
	for i := range n {
		ops = journal.AppendTimerOp(ops, journal.TimerOp{Name: fmt.Appendf(nil, "t%05d", i), Due: int64(i) << 36, Command: []byte("ring")})
	}
	r := record("a", 0, journal.Hash{}, 0)
	r.Sections = []journal.Section{{Kind: journal.SectionTimers, Data: ops}}
	return r
}

func benchEntry(r *journal.Record) []byte {
	return journal.AppendRecord(journal.AppendPacedHeader(nil, sharding.VersionPacedWork, journal.EntryRecords, 1, 1), r)
}
