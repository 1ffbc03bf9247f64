package eventlog_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

func entry(term sharding.Term, records ...journal.Record) []byte {
	b := journal.AppendEntryHeader(nil, journal.EntryRecords, term, 1)
	for i := range records {
		b = journal.AppendRecord(b, &records[i])
	}
	return b
}

func record(id string, expected journal.Sequence, prev journal.Hash, events int) journal.Record {
	r := journal.Record{Entity: sharding.EntityID{Type: "t", ID: id}, Term: 1, RecordedAt: 5, Expected: expected, Prev: prev, CommandID: "c"}
	for i := range events {
		r.Events = append(r.Events, journal.Event{Type: "e", Payload: []byte{byte(i)}})
	}
	return r
}

// An entry that this replica cannot read stops its shard before the entry, and
// no other shard.
func TestUnreadableEntryStopsTheShard(t *testing.T) {
	good := entry(1, record("a", 0, journal.Hash{}, 1))
	flipped := append([]byte{}, good...)
	flipped[len(flipped)-1] ^= 1
	second := append(entry(1, record("b", 0, journal.Hash{}, 1)), flipped[journal.EntryHeaderBytes:]...)
	for name, tt := range map[string]struct {
		data []byte
		want error
	}{
		"record":  {flipped, journal.ErrDamaged},
		"second":  {second, journal.ErrDamaged},
		"cut":     {good[:len(good)-1], journal.ErrDamaged},
		"short":   {good[:5], journal.ErrDamaged},
		"version": {append([]byte{9}, good[1:]...), journal.ErrUnsupported},
		"kind":    {append([]byte{1, 9}, good[2:]...), journal.ErrUnsupported},
	} {
		st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
		m := openMachine(t, st, 0, eventlog.Options{})
		if v := apply1(m, 1, journal.Committed{Index: 1, Term: 1}); v.Err != nil || !v.NoOp {
			t.Fatalf("%s: no-op: %+v", name, v)
		}
		for i := range uint64(3) {
			data := tt.data
			if i > 0 {
				data = good
			}
			v := apply1(m, 1, journal.Committed{Index: 2 + i, Term: 1, Data: data})
			var stopped *eventlog.StoppedError
			if !errors.Is(v.Err, tt.want) || !errors.Is(v.Err, eventlog.ErrStopped) || !errors.As(v.Err, &stopped) || stopped.Index != 1 {
				t.Errorf("%s: verdict %v", name, v.Err)
			}
		}
		if n := m.Entities(1); n != 0 {
			t.Errorf("%s: %d entities", name, n)
		}
		if index, _ := m.Applied(1); index != 1 || m.StopError(1) == nil || m.StopError(2) != nil {
			t.Errorf("%s: applied %d, stopped %v", name, index, m.StopError(1))
		}
		for _, id := range []string{"a", "b"} {
			if seq, _, exists, err := m.Head(1, sharding.EntityID{Type: "t", ID: id}); seq != 0 || exists || !errors.Is(err, journal.ErrStopped) {
				t.Errorf("%s: head of %s is %d %v %v", name, id, seq, exists, err)
			}
		}
		if v := apply1(m, 2, journal.Committed{Index: 1, Term: 1, Data: good}); v.Err != nil {
			t.Errorf("%s: other shard: %v", name, v.Err)
		}
		flush(t, m, st)
	}
}

// An entity row that the store cannot read stops the shard; the entity is not
// mistaken for a new entity.
func TestUnreadableEntityRowStopsShard(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{})
	apply1(m, 1, journal.Committed{Index: 1, Term: 1, Data: entry(1, record("a", 0, journal.Hash{}, 1))})
	flush(t, m, st)
	l := &liar{st, map[string][]byte{}}
	m, err := eventlog.OpenOn(l, st.MaxVersion(), eventlog.Options{})
	if err == nil {
		err = m.SetRecoveryTargets(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.lies[string(store.AppendEntity(store.AppendPrefix(nil, 1, 0, store.ClassEntity), []byte("t"), []byte("a")))] = []byte("not a head")
	v := apply1(m, 1, journal.Committed{Index: 2, Term: 1, Data: entry(1, record("a", 0, journal.Hash{}, 1))})
	if !errors.Is(v.Err, eventlog.ErrStopped) || !errors.Is(v.Err, journal.ErrDamaged) || m.Err() != nil {
		t.Fatalf("verdict %v, failed %v", v.Err, m.Err())
	}
}

// If the store has a row that no batch wrote, the row is ignored and not even
// read. The entity is new, and its first record overwrites the row.
func TestStrayEntityRowIsIgnored(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{})
	apply1(m, 1, journal.Committed{Index: 1, Term: 1, Data: entry(1, record("a", 0, journal.Hash{}, 1))})
	flush(t, m, st)
	l := &liar{st, map[string][]byte{}}
	m, err := eventlog.OpenOn(l, st.MaxVersion(), eventlog.Options{MaxEntityRows: 1})
	if err == nil {
		err = m.SetRecoveryTargets(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	e := sharding.EntityID{Type: "t", ID: "b"}
	rows, err := rowsOf(st, st.MaxVersion(), 1, store.ClassEntity)
	if err != nil || len(rows) != 1 {
		t.Fatal(err, len(rows))
	}
	key := string(store.AppendEntityID(store.AppendPrefix(nil, 1, 0, store.ClassEntity), e))
	l.lies[key] = rows[0].body
	if seq, _, exists, err := m.Head(1, e); seq != 0 || exists || err != nil || !m.IsAbsent(1, e) {
		t.Fatalf("a stray head: %d %v %v", seq, exists, err)
	}
	if v := apply1(m, 1, journal.Committed{Index: 2, Term: 1, Data: entry(1, record("b", 0, journal.Hash{}, 1))}); v.Err != nil {
		t.Fatal(v.Err)
	}
	delete(l.lies, key)
	flush(t, m, st)
	apply1(m, 1, journal.Committed{Index: 3, Term: 1, Data: entry(1, record("c", 0, journal.Hash{}, 1))}) // evicts the row from memory
	flush(t, m, st)
	if seq, _, exists, err := m.Head(1, e); seq != 1 || !exists || err != nil || m.IsAbsent(1, e) {
		t.Fatalf("the head in its place: %d %v %v", seq, exists, err)
	}
}

// IsAbsent returns false for every entity of a stopped or missing shard.
func TestIsAbsentIsFalseForUnreadableShard(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{})
	e := sharding.EntityID{Type: "t", ID: "a"}
	if m.IsAbsent(1, e) {
		t.Error("an entity is absent in a shard of which nothing is known")
	}
	apply1(m, 1, journal.Committed{Index: 1, Term: 1})
	if !m.IsAbsent(1, e) {
		t.Error("an entity is not known to be absent")
	}
	m.Stop(1, journal.ErrDamaged)
	apply1(m, 1, journal.Committed{Index: 2, Term: 1})
	if m.IsAbsent(1, e) {
		t.Error("an entity is absent in a shard that has stopped")
	}
}

// Entries that no proposer should send are rejected identically everywhere.
func TestInvalidEntriesAreRejected(t *testing.T) {
	long := record("a", 0, journal.Hash{}, 0)
	long.Reply = make([]byte, eventlog.MaxRecordBytes)
	fits := record("fits", 0, journal.Hash{}, 0)
	fits.Reply = make([]byte, eventlog.MaxRecordBytes-len(journal.AppendRecord(nil, &fits)))
	zero := record("a\x00b", 0, journal.Hash{}, 0)
	name := record(strings.Repeat("x", sharding.MaxEntityIDBytes+1), 0, journal.Hash{}, 0)
	other := record("a", 0, journal.Hash{}, 0)
	other.Term = 2
	meta := append(journal.AppendEntryHeader(nil, journal.EntryMeta, 1, 1), 'x')
	half := []journal.Record{record("fits", 0, journal.Hash{}, 0), zero}
	for i, tt := range []struct {
		shard sharding.ShardID
		data  []byte
		want  error
	}{
		{1, entry(1), eventlog.ErrInvalid},
		{1, entry(1, long), eventlog.ErrInvalid},
		{1, entry(1, zero), eventlog.ErrInvalid},
		{1, entry(1, half...), eventlog.ErrInvalid},
		{1, entry(1, name), eventlog.ErrInvalid},
		{1, entry(1, record("", 0, journal.Hash{}, 0)), eventlog.ErrInvalid},
		{1, entry(1, other), eventlog.ErrFenced},
		{1, entry(2, other), eventlog.ErrFenced},
		{1, meta, eventlog.ErrInvalid},
		{0, entry(1, record("a", 0, journal.Hash{}, 0)), eventlog.ErrInvalid},
		{1, entry(1, fits), nil},
	} {
		st := openStore(t, filepath.Join(t.TempDir(), "store"), store.Options{})
		m := openMachine(t, st, 0, eventlog.Options{})
		v := apply1(m, tt.shard, journal.Committed{Index: 1, Term: 1, Data: tt.data})
		checkVerdict(t, v, tt.want)
		if errors.Is(v.Err, eventlog.ErrStopped) {
			t.Errorf("case %d stopped the shard", i)
		}
		if index, _ := m.Applied(tt.shard); index != 1 {
			t.Errorf("case %d: applied %d", i, index)
		}
		if _, _, exists, _ := m.Head(1, fits.Entity); exists != (tt.want == nil) {
			t.Errorf("case %d: the entity exists: %v", i, exists)
		}
		flush(t, m, st)
	}
}

// registry is a metadata state machine: set key value, or delete key.
type registry struct{ pairs map[string]string }

func (r *registry) Apply(index uint64, body []byte) ([]eventlog.KV, []byte, error) {
	words := strings.Fields(string(body))
	var out []eventlog.KV
	for len(words) > 1 {
		kv := eventlog.KV{Key: []byte(words[0]), Value: []byte(words[1])}
		r.pairs[words[0]] = words[1]
		if words[1] == "-" {
			kv.Value = nil
			delete(r.pairs, words[0])
		}
		out, words = append(out, kv), words[2:]
	}
	return out, fmt.Appendf(nil, "done %d", index), nil
}

func (r *registry) Replace(_ uint64, restore func(put func(key, value []byte) error) error) error {
	next := make(map[string]string)
	err := restore(func(key, value []byte) error {
		if _, twice := next[string(key)]; twice {
			return errors.New("restored twice")
		}
		next[string(key)] = string(value)
		return nil
	})
	if err == nil {
		r.pairs = next
	}
	return err
}

// The metadata is restored as of the watermark, and later entries are applied
// again, including deletions.
func TestMetadataIsRestored(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	command := func(i int) journal.Committed {
		body := fmt.Sprintf("k%d v%d k%d - same v%d same w%d", i, i, i-3, i, i)
		return journal.Committed{Index: uint64(i), Term: 1, Data: append(journal.AppendEntryHeader(nil, journal.EntryMeta, 1, uint64(i)), body...)}
	}
	const commands = 40
	for _, watermark := range []uint64{0, 7, 22, 39} {
		live := &registry{pairs: make(map[string]string)}
		st := openStore(t, fmt.Sprint(dir, watermark), smallStore)
		m := openMachine(t, st, 0, eventlog.Options{Metadata: live})
		for i := 1; i <= commands; i++ {
			v := apply1(m, 0, command(i))
			if v.Err != nil || string(v.Meta) != fmt.Sprintf("done %d", i) {
				t.Fatalf("verdict %+v", v)
			}
			flush(t, m, st)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		back := &registry{pairs: make(map[string]string)}
		st = openStore(t, fmt.Sprint(dir, watermark), smallStore)
		m, err := eventlog.Open(st, watermark, eventlog.Options{Metadata: back})
		if err != nil {
			t.Fatal(err)
		}
		if index, _ := m.Applied(0); index != watermark {
			t.Fatalf("applied %d as of version %d", index, watermark)
		}
		if watermark > 4 && len(back.pairs) != 4 {
			t.Fatalf("restored %v as of %d", back.pairs, watermark)
		}
		if err := m.SetRecoveryTargets(map[sharding.ShardID]uint64{0: commands}); err != nil {
			t.Fatal(err)
		}
		for i := int(watermark) + 1; i <= commands; i++ {
			if v := apply1(m, 0, command(i)); v.Err != nil {
				t.Fatal(v.Err)
			}
		}
		if fmt.Sprint(back.pairs) != fmt.Sprint(live.pairs) {
			t.Fatalf("from %d:\n got %v\nwant %v", watermark, back.pairs, live.pairs)
		}
	}
}

// Damage that is found outside of apply stops the shard once, in its current
// state, for all readers. The shard's next generation works.
func TestDamageFoundElsewhereStopsTheGeneration(t *testing.T) {
	var told []eventlog.Stopped
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{Stopped: func(s eventlog.Stopped) { told = append(told, s) }})
	apply1(m, 1, journal.Committed{Index: 1, Term: 1})
	apply1(m, 2, journal.Committed{Index: 1, Term: 1, Data: entry(1, record("a", 0, journal.Hash{}, 1))})
	wake, cancel, err := m.SubscribeOrder([]sharding.ShardID{2})
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	m.Stop(2, &store.DamageError{Where: "table 7", What: "a block fails its checksum"})
	m.Stop(2, errors.New("found again"))
	if len(told) != 1 || told[0].Shard != 2 || told[0].Generation != 0 || told[0].Reason() != sharding.StopDamaged || told[0].Err.Index != 1 {
		t.Fatalf("told %+v", told)
	}
	select {
	case <-wake:
	default:
		t.Error("who waits for records is not told")
	}
	a := sharding.EntityID{Type: "t", ID: "a"}
	if _, _, _, err := m.Head(2, a); !errors.Is(err, journal.ErrStopped) || !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("a head is read: %v", err)
	}
	if _, err := m.ReadOrder(t.Context(), 2, 0, func(*store.OrderRow) error { return nil }); !errors.Is(err, journal.ErrStopped) {
		t.Errorf("records are read: %v", err)
	}
	if v := apply1(m, 2, journal.Committed{Index: 2, Term: 1}); !errors.Is(v.Err, eventlog.ErrStopped) {
		t.Errorf("applied: %+v", v)
	}
	if all := m.StoppedShards(); len(all) != 1 || all[2] == nil {
		t.Errorf("stopped: %v", all)
	}
	m.Drop(2, 1)
	if v := apply1(m, 2, journal.Committed{Index: 1, Term: 2, Data: entry(2)}); errors.Is(v.Err, eventlog.ErrStopped) || m.StopError(2) != nil {
		t.Errorf("the next generation has stopped too: %+v", v)
	}
	m.Stop(2, fmt.Errorf("entry 9: %w", journal.ErrUnsupported))
	if len(told) != 2 || told[1].Generation != 1 || told[1].Reason() != sharding.StopUnsupported {
		t.Errorf("told %+v", told)
	}
	flush(t, m, st)
}
