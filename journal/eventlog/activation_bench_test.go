package eventlog_test

import (
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

// One operation loads an entity from its snapshot. It reads the 256th to the
// 300th record with events, and then 40 records without events, which were
// flushed a few at a time.
func BenchmarkActivation(b *testing.B) {
	m, st := benchMachine(b)
	e := sharding.EntityID{Type: "account", ID: "account-1"}
	module := journal.Digest{1}
	var chain journal.Chain
	var hash journal.Hash
	seq, index := journal.Sequence(0), uint64(0)
	apply := func(entry []byte) {
		index++
		if v := m.Apply(1, []journal.Committed{{Index: index, Term: 1, Data: entry}}); v[0].Err != nil {
			b.Fatal(v[0].Err)
		}
	}
	record := func(events ...journal.Event) {
		r := journal.Record{
			Entity: e, Term: 1, RecordedAt: 1e18, Expected: seq, Prev: hash,
			CommandID: "01890a5dac96774bbcceb302099a8057", Reply: make([]byte, 16), Events: events,
		}
		seq, hash = r.Last(), chain.After(&r)
		apply(journal.AppendRecord(journal.AppendEntryHeader(nil, journal.EntryRecords, 1, index+1), &r))
	}
	for range 300 {
		record(journal.Event{Type: "deposited", Payload: make([]byte, 40)})
		if seq == 256 {
			s := journal.Snapshot{Entity: e, Sequence: seq, Hash: hash, Module: module, Window: 1, Keep: 2,
				Filter: make([]byte, 256), FilterIDs: 256, State: make([]byte, 100)}
			apply(journal.AppendSnapshot(journal.AppendEntryHeader(nil, journal.EntrySnapshot, 1, index+1), &s))
		}
	}
	flush(b, m, st)
	for i := range 40 {
		if record(); i%4 == 3 {
			flush(b, m, st)
		}
	}
	h := eventlog.History{Machine: m}
	b.ReportAllocs()
	for b.Loop() {
		snap, err := h.Snapshot(b.Context(), 1, e, journal.SnapshotsBy(module), 0)
		if err != nil || snap == nil {
			b.Fatal(snap, err)
		}
		n := 0
		err = h.Read(b.Context(), 1, e, snap.Sequence, func(*journal.Record, journal.Hash) error {
			n++
			return nil
		})
		if err != nil || n != 85 {
			b.Fatal(n, err)
		}
		if _, _, err := h.PendingMessages(1, e); err != nil {
			b.Fatal(err)
		}
	}
}
