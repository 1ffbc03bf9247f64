package eventlog

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// span is a block of an entity's records i..j, counted from 1.
type span struct{ from, to int }

// Blocks may overlap, and some may be missing. They are read as one history if
// every record is in at least one block; otherwise the read reports damage.
func TestReadOverlappingPacks(t *testing.T) {
	entity := sharding.EntityID{Type: "t", ID: "x"}
	var recs []journal.Record
	var chain journal.Chain
	h, seq := journal.Hash{}, journal.Sequence(0)
	for i := range 12 {
		r := journal.Record{Entity: entity, Term: 1, Expected: seq, Prev: h, CommandID: "c"}
		for range []int{0, 2, 0, 0, 1, 1, 0, 3, 0, 1, 1, 0}[i] {
			r.Events = append(r.Events, journal.Event{Type: "e"})
		}
		h, seq = chain.After(&r), r.Last()
		recs = append(recs, r)
	}
	at := func(i int) journal.Position { return journal.Position{Index: uint64(i), Ordinal: uint32(i % 2)} }
	for _, tt := range []struct {
		name  string
		packs []span
		whole bool
	}{
		{"one", []span{{1, 12}}, true},
		{"several", []span{{1, 3}, {4, 4}, {5, 12}}, true},
		{"overlap", []span{{1, 4}, {1, 10}, {5, 12}}, true},
		{"older one starts late", []span{{5, 10}, {1, 12}}, true},
		{"late after an eventless record", []span{{1, 5}, {8, 8}, {6, 9}, {10, 12}}, true},
		{"late at an eventless record", []span{{1, 2}, {4, 5}, {3, 12}}, true},
		{"hole", []span{{1, 4}, {6, 12}}, false},
		{"hole of an eventless record", []span{{1, 6}, {8, 12}}, false},
		{"no start", []span{{2, 12}}, false},
		{"no end", []span{{1, 11}}, false},
		{"nothing", nil, false},
	} {
		st, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var b store.Batch
		for _, p := range tt.packs {
			key := store.AppendEntityID(store.AppendPrefix(nil, 1, 0, store.ClassRecord), entity)
			before := journal.Position{}
			if p.from > 1 {
				before = at(p.from - 1)
			}
			buf := store.AppendPackStart(b.Begin(store.AppendRecordSuffix(key, recs[p.to-1].Last(), at(p.to))), before)
			for i := p.from; i <= p.to; i++ {
				buf = store.AppendPackRecord(buf, at(i), journal.AppendRecord(nil, &recs[i-1]))
			}
			b.End(buf)
		}
		b.Put(store.AppendEntityID(store.AppendPrefix(nil, 1, 0, store.ClassEntity), entity),
			store.AppendHead(nil, &store.Head{Sequence: seq, Hash: h, Last: at(12)}))
		if err := st.Write(&b, 1); err != nil {
			t.Fatal(err)
		}
		sh := &shard{id: 1, heads: make(map[string]*entityRow), applied: store.Applied{Heads: 1}}
		sh.rows = rows.New(1, 0, 0, func(err error) error { return err })
		m := &Machine{Reader: Reader{st: kv.Of(st), readAt: 1, shards: map[sharding.ShardID]*shard{1: sh}}}
		view, err := m.st.ViewAt(1)
		if err == nil {
			err = sh.rows.Open(view, &sh.applied)
			view.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		for from := journal.Sequence(0); from <= seq+1; from++ {
			checkSpans(t, tt.name, m, entity, recs, from, seq, tt.whole)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func checkSpans(t *testing.T, name string, m *Machine, e sharding.EntityID, recs []journal.Record, from, end journal.Sequence, whole bool) {
	t.Helper()
	want := 0
	for want < len(recs) && recs[want].Last() < from {
		want++
	}
	i := want
	err := m.Read(t.Context(), 1, e, from, func(at journal.Position, rec *journal.Record) error {
		if i == len(recs) || at.Index != uint64(i+1) || rec.Last() != recs[i].Last() {
			t.Fatalf("%s: from %d: record at %v where number %d is due", name, from, at, i+1)
		}
		i++
		return nil
	})
	complete := i == len(recs)
	if err == nil && !complete || whole && err != nil || from == 0 && !whole && err == nil {
		t.Errorf("%s: from %d: %d of %d records, error %v", name, from, i-want, len(recs)-want, err)
	}
}

// When a shard's generation ends, its rows leave memory, including rows that
// wait to be written or are in flight.
func TestRowsOfEndedGenerationsAreEvicted(t *testing.T) {
	st, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	m, err := Open(st, 0, Options{MaxEntityRows: 2})
	if err == nil {
		err = m.SetRecoveryTargets(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	index := uint64(0)
	apply := func(shard sharding.ShardID, id string) {
		index++
		rec := journal.Record{Entity: sharding.EntityID{Type: "t", ID: id}, Term: 1, CommandID: "c", Events: []journal.Event{{Type: "e"}}}
		data := journal.AppendRecord(journal.AppendEntryHeader(nil, journal.EntryRecords, 1, index), &rec)
		if v := m.Apply(shard, []journal.Committed{{Index: index, Term: 1, Data: data}})[0]; v.Err != nil {
			t.Fatal(v.Err)
		}
	}
	flush := func() {
		b := m.TakeBatch()
		if err := b.Write(st); err != nil {
			t.Fatal(err)
		}
		m.MarkFlushed(b)
	}
	for round := range uint32(20) {
		for _, id := range []string{"a", "b", "c"} {
			apply(1, id)
		}
		b := m.TakeBatch()
		for _, id := range []string{"d", "e", "f"} {
			apply(1, id)
		}
		m.Drop(1, round+1)
		if err := b.Write(st); err != nil {
			t.Fatal(err)
		}
		m.MarkFlushed(b)
	}
	for _, id := range []string{"x", "y", "z"} {
		apply(2, id)
		flush()
	}
	if n := len(m.clock.heads); n > 4 {
		t.Errorf("%d heads are in memory, of at most 2 that are not waited for", n)
	}
}

// Executors call IsAbsent, so it must not wait while a batch is taken.
func TestIsAbsentDoesNotWaitForBatch(t *testing.T) {
	st, err := store.Open(filepath.Join(t.TempDir(), "store"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	m, err := Open(st, 0, Options{})
	if err == nil {
		err = m.SetRecoveryTargets(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	m.Apply(1, []journal.Committed{{Index: 1, Term: 1}})
	e := sharding.EntityID{Type: "t", ID: "a"}
	if !m.IsAbsent(1, e) {
		t.Fatal("an entity is not known to be absent")
	}
	answer := make(chan bool, 1)
	m.lockLong()
	defer m.unlockLong()
	go func() { answer <- m.IsAbsent(1, e) }()
	select {
	case absent := <-answer:
		if absent {
			t.Error("an entity is absent while others change what is known")
		}
	case <-time.After(30 * time.Second):
		t.Error("it waits for who changes what is known")
	}
}
