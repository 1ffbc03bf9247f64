package eventlog_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

var contextOf = context.Background()

// A read reports damage if the store does not find an entity row or returns an
// earlier version of the row. The entity is not mistaken for a new entity.
func TestMissingEntityRowIsDamage(t *testing.T) {
	e := sharding.EntityID{Type: "t", ID: "a"}
	key := store.AppendEntityID(store.AppendPrefix(nil, 1, 0, store.ClassEntity), e)
	for _, stale := range []bool{false, true} {
		st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
		m := openMachine(t, st, 0, eventlog.Options{})
		first := record("a", 0, journal.Hash{}, 2)
		var chain journal.Chain
		apply1(m, 1, journal.Committed{Index: 1, Term: 1, Data: entry(1, first)})
		flush(t, m, st)
		before, err := rowsOf(st, st.MaxVersion(), 1, store.ClassEntity)
		if err != nil || len(before) != 1 {
			t.Fatal(err, len(before))
		}
		apply1(m, 1, journal.Committed{Index: 2, Term: 1, Data: entry(1, record("a", 2, chain.After(&first), 3))})
		flush(t, m, st)

		l := &liar{st, map[string][]byte{}}
		for what, ask := range map[string]func(m *eventlog.Machine) error{
			"records": func(m *eventlog.Machine) error {
				return m.Read(t.Context(), 1, e, 0, func(journal.Position, *journal.Record) error { return nil })
			},
			"head": func(m *eventlog.Machine) error {
				_, _, _, err := m.Head(1, e)
				return err
			},
			"snapshot": func(m *eventlog.Machine) error {
				_, err := m.Snapshot(t.Context(), 1, e, journal.SnapshotsBy(journal.Digest{}), 0)
				return err
			},
			"timers": func(m *eventlog.Machine) error {
				_, err := m.TimersOf(t.Context(), 1, e, 10)
				return err
			},
			"verdict": func(m *eventlog.Machine) error {
				c := journal.Committed{Index: 3, Term: 1, Data: entry(1, record("a", 0, journal.Hash{}, 1))}
				if stale {
					c.Data = entry(1, record("a", 2, chain.After(&first), 1))
				}
				return apply1(m, 1, c).Err
			},
		} {
			clear(l.lies)
			m, err := eventlog.OpenOn(l, st.MaxVersion(), eventlog.Options{})
			if err == nil {
				err = m.SetRecoveryTargets(nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			if l.lies[string(key)] = nil; stale {
				l.lies[string(key)] = before[0].body
			}
			if err := ask(m); !errors.Is(err, journal.ErrDamaged) {
				t.Errorf("%s, stale %v: %v", what, stale, err)
			}
			v := apply1(m, 1, journal.Committed{Index: 4, Term: 1})
			if !errors.Is(v.Err, eventlog.ErrStopped) || !errors.Is(m.StopError(1), journal.ErrDamaged) {
				t.Errorf("%s, stale %v: the shard goes on: %v", what, stale, v.Err)
			}
		}
	}
}

// If a store hides any row or returns an earlier version of the row, every
// answer is either right or reports damage. After a report of damage the shard
// stops.
func TestWrongRowsAreNeverServed(t *testing.T) {
	classes := []store.Class{
		store.ClassEntity, store.ClassTimer, store.ClassDue, store.ClassCount, store.ClassInbox, store.ClassOutbox, store.ClassDeadLetter,
	}
	for seed := range uint64(*seeds) {
		rng := rand.New(rand.NewPCG(seed, 7))
		src := newSource(seed+30, 1, 12)
		st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
		m := openMachine(t, st, 0, eventlog.Options{MaxEntityRows: 3, BlockBytes: 500})
		var versions []uint64
		for range 30 {
			for range 20 {
				id, c, want := src.next()
				checkVerdict(t, apply1(m, id, c), want)
			}
			flush(t, m, st)
			versions = append(versions, st.MaxVersion())
		}
		at := st.MaxVersion()
		sh := src.model.shards[1]
		right, errs := answers(m, 1, sh)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, class := range classes {
			rows, err := rowsOf(st, at, 1, class)
			if err != nil {
				t.Fatal(err)
			}
			for range min(4, len(rows)) {
				r := rows[rng.IntN(len(rows))]
				lie := earlier(t, st, versions, class, r, rng)
				if len(r.key) == len(store.AppendPrefix(nil, 1, 0, class)) {
					continue // the shard's totals are checked when it is opened
				}
				checkLie(t, st, at, sh, right, r, lie)
			}
		}
	}
}

// earlier returns an earlier version of a row, or nil.
func earlier(t *testing.T, st *store.Store, versions []uint64, class store.Class, r row, rng *rand.Rand) []byte {
	t.Helper()
	if class == store.ClassDue || rng.IntN(2) == 0 {
		return nil
	}
	rows, err := rowsOf(st, versions[rng.IntN(len(versions))], 1, class)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range rows {
		if bytes.Equal(o.key, r.key) && !bytes.Equal(o.body, r.body) {
			return o.body
		}
	}
	return nil
}

func checkLie(t *testing.T, st *store.Store, at uint64, sh *modelShard, right []string, r row, lie []byte) {
	t.Helper()
	l := &liar{st, map[string][]byte{}}
	m, err := eventlog.OpenOn(l, at, eventlog.Options{MaxEntityRows: 1})
	if err == nil {
		err = m.SetRecoveryTargets(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	l.lies[string(r.key)] = lie
	said, errs := answers(m, 1, sh)
	damaged := 0
	for i := range said {
		switch {
		case errors.Is(errs[i], journal.ErrDamaged):
			damaged++
		case errs[i] != nil:
			t.Fatalf("%s: %v", right[i], errs[i])
		case said[i] != right[i]:
			t.Fatalf("%s is hidden, or as before (%v):\n said %s\nright %s", store.DescribeKey(r.key), lie != nil, said[i], right[i])
		}
	}
	if damaged == 0 {
		t.Fatalf("%s is hidden, or as before (%v), and nobody notices", store.DescribeKey(r.key), lie != nil)
	}
	v := apply1(m, 1, journal.Committed{Index: sh.index + 1, Term: sh.term})
	if !errors.Is(v.Err, eventlog.ErrStopped) || !errors.Is(v.Err, journal.ErrDamaged) {
		t.Fatalf("%s is hidden: the shard goes on: %v", store.DescribeKey(r.key), v.Err)
	}
}

// Opening a store detects missing rows by the checksums in the applied record
// or, if an earlier release wrote that record, by other counts.
func TestMissingRowsAreFoundAtStart(t *testing.T) {
	for _, class := range []store.Class{
		store.ClassEntity, store.ClassTimer, store.ClassCount, store.ClassInbox, store.ClassOutbox, store.ClassDeadLetter,
	} {
		src := newSource(uint64(class), 1, 4)
		st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
		m := openMachine(t, st, 0, eventlog.Options{})
		for range 20 {
			for range 30 {
				id, c, want := src.next()
				checkVerdict(t, apply1(m, id, c), want)
			}
			flush(t, m, st)
		}
		rows, err := rowsOf(st, st.MaxVersion(), 1, class)
		if err != nil || len(rows) == 0 {
			t.Fatalf("class %c: %d rows, %v", class, len(rows), err)
		}
		l := &liar{st, map[string][]byte{string(rows[src.rng.IntN(len(rows))].key): nil}}
		m, err = eventlog.OpenOn(l, st.MaxVersion(), eventlog.Options{})
		if err == nil {
			err = m.SetRecoveryTargets(nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		sh := src.model.shards[1]
		if v := apply1(m, 1, journal.Committed{Index: sh.index + 1, Term: sh.term}); !errors.Is(v.Err, journal.ErrDamaged) {
			t.Errorf("class %c: the shard goes on: %v", class, v.Err)
		}
	}
}

// A node with missing metadata does not start.
func TestNodeDoesNotStartWithMissingMetadata(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{Metadata: &registry{pairs: make(map[string]string)}})
	data := append(journal.AppendEntryHeader(nil, journal.EntryMeta, 1, 1), "a 1 b 2 c 3"...)
	if v := apply1(m, 0, journal.Committed{Index: 1, Term: 1, Data: data}); v.Err != nil {
		t.Fatal(v.Err)
	}
	flush(t, m, st)
	rows, err := rowsOf(st, st.MaxVersion(), 0, store.ClassMeta)
	if err != nil || len(rows) == 0 {
		t.Fatal(len(rows), err)
	}
	l := &liar{st, map[string][]byte{string(rows[0].key): nil}}
	if _, err := eventlog.OpenOn(l, st.MaxVersion(), eventlog.Options{Metadata: &registry{pairs: make(map[string]string)}}); !errors.Is(err, journal.ErrDamaged) {
		t.Fatalf("opened without a pair of the metadata: %v", err)
	}
}

// An export detects a missing row, so that no other replica starts from an
// incomplete state.
func TestExportDetectsMissingRows(t *testing.T) {
	src := newSource(8, 1, 6)
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	l := &liar{st, map[string][]byte{}}
	m, err := eventlog.OpenOn(l, 0, eventlog.Options{})
	if err == nil {
		err = m.SetRecoveryTargets(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		for range 30 {
			id, c, want := src.next()
			checkVerdict(t, apply1(m, id, c), want)
		}
		flush(t, m, st)
	}
	stream := func() error {
		e, err := m.Pin(1)
		if err != nil {
			return err
		}
		s := e.Stream()
		_, err = io.Copy(io.Discard, s)
		return errors.Join(err, s.Close())
	}
	if err := stream(); err != nil {
		t.Fatal(err)
	}
	rows, err := rowsOf(st, st.MaxVersion(), 1, store.ClassDue)
	if err != nil || len(rows) == 0 {
		t.Fatal(len(rows), err)
	}
	l.lies[string(rows[len(rows)/2].key)] = nil
	if err := stream(); !errors.Is(err, journal.ErrDamaged) {
		t.Errorf("without a timer: %v", err)
	}
	sh := src.model.shards[1]
	if v := apply1(m, 1, journal.Committed{Index: sh.index + 1, Term: sh.term}); !errors.Is(v.Err, journal.ErrDamaged) {
		t.Errorf("the shard goes on: %v", v.Err)
	}
}

// An audit finds missing rows that are never read.
func TestAuditFindsMissingRows(t *testing.T) {
	src := newSource(9, 1, 6)
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	l := &liar{st, map[string][]byte{}}
	var m *eventlog.Machine
	open := func(at uint64) {
		var err error
		if m, err = eventlog.OpenOn(l, at, eventlog.Options{}); err == nil {
			err = m.SetRecoveryTargets(nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	open(0)
	for range 20 {
		for range 30 {
			id, c, want := src.next()
			checkVerdict(t, apply1(m, id, c), want)
		}
		flush(t, m, st)
	}
	pauses := func(context.Context) error { return nil }
	for _, class := range []store.Class{store.ClassDue, store.ClassEntity, store.ClassTimer, store.ClassCount, store.ClassInbox, store.ClassOutbox, store.ClassDeadLetter} {
		clear(l.lies)
		open(st.MaxVersion())
		if err := m.Audit(t.Context(), 1, pauses); err != nil {
			t.Fatal(err)
		}
		rows, err := rowsOf(st, st.MaxVersion(), 1, class)
		if err != nil || len(rows) == 0 {
			t.Fatal(len(rows), err)
		}
		last := string(rows[len(rows)-1].key)
		for i := range rows { // the same number of rows, but one of them changed
			if class != store.ClassDue && !bytes.Equal(rows[i].body, rows[len(rows)-1].body) { // for these only the keys are included
				l.lies[last] = rows[i].body
				break
			}
		}
		if err := m.Audit(t.Context(), 1, pauses); l.lies[last] != nil && !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("class %c, another value: %v", class, err)
		}
		clear(l.lies)
		open(st.MaxVersion())
		l.lies[last] = nil
		if err := m.Audit(t.Context(), 1, pauses); !errors.Is(err, journal.ErrDamaged) {
			t.Errorf("class %c: %v", class, err)
		}
		sh := src.model.shards[1]
		if v := apply1(m, 1, journal.Committed{Index: sh.index + 1, Term: sh.term}); !errors.Is(v.Err, journal.ErrDamaged) {
			t.Errorf("class %c: the shard goes on: %v", class, v.Err)
		}
		if err := m.Audit(t.Context(), 1, pauses); err != nil {
			t.Errorf("a shard that has stopped is audited: %v", err)
		}
	}
}
