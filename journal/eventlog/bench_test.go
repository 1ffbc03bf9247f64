package eventlog_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// load creates entries of 150-byte events for many entities of some shards.
type load struct {
	shards, perShard, perEntry int
	index                      []uint64
	seq                        []journal.Sequence
	hash                       []journal.Hash
	chain                      journal.Chain
	next                       int
}

func newLoad(shards, perShard, perEntry int) *load {
	return &load{shards: shards, perShard: perShard, perEntry: perEntry, index: make([]uint64, shards),
		seq: make([]journal.Sequence, shards*perShard), hash: make([]journal.Hash, shards*perShard)}
}

func (l *load) entry(shard int) (sharding.ShardID, journal.Committed) {
	b := journal.AppendEntryHeader(nil, journal.EntryRecords, 1, 1)
	for range l.perEntry {
		n := shard*l.perShard + l.next%l.perShard
		l.next += 7
		r := journal.Record{
			Entity: sharding.EntityID{Type: "account", ID: fmt.Sprintf("account-%08d", n)}, Term: 1, RecordedAt: 1e18,
			Expected: l.seq[n], Prev: l.hash[n], CommandID: "01890a5d-ac96-774b-bcce-b302099a8057", Reply: make([]byte, 16),
			Events: []journal.Event{{Type: "deposited", Payload: make([]byte, 150)}},
		}
		l.seq[n], l.hash[n] = r.Last(), l.chain.After(&r)
		b = journal.AppendRecord(b, &r)
	}
	l.index[shard]++
	return sharding.ShardID(shard + 1), journal.Committed{Index: l.index[shard], Term: 1, Data: b}
}

// prepare creates entries with n records in total, round-robin over the shards.
func (l *load) prepare(n int) (ids []sharding.ShardID, entries []journal.Committed) {
	for shard := 0; n > 0; n -= l.perEntry {
		id, c := l.entry(shard)
		ids, entries = append(ids, id), append(entries, c)
		shard = (shard + 1) % l.shards
	}
	return ids, entries
}

func benchMachine(b *testing.B) (*eventlog.Machine, *store.Store) {
	st := openStore(b, filepath.Join(b.TempDir(), "store"), store.Options{})
	return openMachine(b, st, 0, eventlog.Options{}), st
}

// One operation is one record.
func BenchmarkApply(b *testing.B) {
	for _, perEntry := range []int{1, 16} {
		b.Run(fmt.Sprintf("records=%d", perEntry), func(b *testing.B) {
			m, st := benchMachine(b)
			l := newLoad(64, 64, perEntry)
			ids, entries := l.prepare(4096 * perEntry)
			for i := range ids { // the rows are in memory from here on
				m.Apply(ids[i], entries[i:i+1])
			}
			flush(b, m, st)
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; {
				b.StopTimer()
				ids, entries = l.prepare(min(b.N-done, 20_000))
				b.StartTimer()
				for i := range ids {
					if v := m.Apply(ids[i], entries[i:i+1]); v[0].Err != nil {
						b.Fatal(v[0].Err)
					}
				}
				done += len(ids) * perEntry
				b.StopTimer()
				flush(b, m, st)
				b.StartTimer()
			}
		})
	}
}

// One operation is one record, in batches of 4,096: of 4,096 entities, or of
// 512 with eight records each.
func BenchmarkFlush(b *testing.B) {
	for _, entities := range []int{4096, 512} {
		b.Run(fmt.Sprintf("entities=%d", entities), func(b *testing.B) {
			m, st := benchMachine(b)
			l := newLoad(64, entities/64, 4)
			b.ReportAllocs()
			b.ResetTimer()
			for done := 0; done < b.N; done += 4096 {
				b.StopTimer()
				ids, entries := l.prepare(4096)
				for i := range ids {
					m.Apply(ids[i], entries[i:i+1])
				}
				b.StartTimer()
				flush(b, m, st)
			}
		})
	}
}

// One operation is a read of one entity's 100 records from the store.
func BenchmarkRead100(b *testing.B) {
	m, st := benchMachine(b)
	l := newLoad(1, 50, 10)
	for range 10 {
		ids, entries := l.prepare(500)
		for i := range ids {
			m.Apply(ids[i], entries[i:i+1])
		}
		flush(b, m, st)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n := 0
		e := sharding.EntityID{Type: "account", ID: fmt.Sprintf("account-%08d", i%50)}
		err := m.Read(b.Context(), 1, e, 0, func(journal.Position, *journal.Record) error {
			n++
			return nil
		})
		if err != nil || n != 100 {
			b.Fatal(n, err)
		}
	}
}

// One operation reads one due timer and ends it, while 100,000 timers are set.
// Every 4,096 operations are followed by a flush.
func BenchmarkDueTimers(b *testing.B) {
	const timers, atOnce, perFlush = 100_000, 256, 4096
	m, st := benchMachine(b)
	index, done := uint64(0), 0
	apply := func(recs []journal.Record) {
		data := journal.AppendEntryHeader(nil, journal.EntryRecords, 1, 1)
		for i := range recs {
			data = journal.AppendRecord(data, &recs[i])
		}
		index++
		if v := m.Apply(1, []journal.Committed{{Index: index, Term: 1, Data: data}}); v[0].Err != nil {
			b.Fatal(v[0].Err)
		}
	}
	fill := func() {
		var recs []journal.Record
		for i := range timers {
			op := journal.TimerOp{Name: []byte("t"), Due: int64(i), Command: []byte("tick"), Payload: make([]byte, 40)}
			recs = append(recs, journal.Record{
				Entity: sharding.EntityID{Type: "t", ID: fmt.Sprintf("e%d", i)}, Term: 1, RecordedAt: 1, CommandID: "c",
				Sections: []journal.Section{{Kind: journal.SectionTimers, Data: journal.AppendTimerOp(nil, op)}},
			})
			if len(recs) == atOnce || i == timers-1 {
				apply(recs)
				recs = recs[:0]
			}
		}
		flush(b, m, st)
	}
	b.ReportAllocs()
	for done < b.N {
		b.StopTimer()
		fill()
		b.StartTimer()
		for left := timers; left > 0 && done < b.N; {
			due, _, err := m.DueTimers(b.Context(), 1, timers, atOnce, nil)
			if err != nil || len(due) == 0 {
				b.Fatal(len(due), err)
			}
			var recs []journal.Record
			for _, t := range due {
				recs = append(recs, journal.Record{
					Entity: t.Entity, Term: 1, RecordedAt: 2, CommandID: "t",
					Sections: []journal.Section{{Kind: journal.SectionSource, Data: journal.AppendTimerSource(nil, journal.TimerSource{Name: []byte(t.Name), Due: t.Due})}},
				})
			}
			apply(recs)
			left, done = left-len(due), done+len(due)
			if left%perFlush < atOnce {
				flush(b, m, st)
			}
		}
	}
}
