package eventlog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// exported returns a shard's stream and its description.
func exported(t testing.TB, m *eventlog.Machine, id sharding.ShardID) (data []byte, in statefile.Install) {
	t.Helper()
	e, err := m.Pin(id)
	if err != nil {
		t.Fatal(err)
	}
	s := e.Stream()
	data, err = io.ReadAll(s)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	return data, installOf(t, data)
}

func installOf(t testing.TB, data []byte) statefile.Install {
	t.Helper()
	r, err := statefile.NewReader(bytes.NewReader(data), nil)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = r.Next(false)
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return statefile.Install{
		Index: r.Header().Index, Term: r.Header().Term, Digest: r.Trailer().Digest,
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
	}
}

// work does all background work.
func work(t testing.TB, m *eventlog.Machine, st *store.Store) {
	t.Helper()
	for m.HasWork() || m.HasPending() {
		for m.HasWork() {
			m.Work()
			if err := m.Err(); err != nil {
				t.Fatal(err)
			}
		}
		flush(t, m, st)
	}
}

// TestExportAndInstall exports every shard of a machine and installs it in a
// second machine. The second machine agrees with the model and continues from
// the installed state.
func TestExportAndInstall(t *testing.T) {
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 77))
		from := openStore(t, filepath.Join(t.TempDir(), "from"), store.Options{})
		to := openStore(t, filepath.Join(t.TempDir(), "to"), store.Options{})
		src := newSource(seed, 3, 12)
		a := openMachine(t, from, 0, eventlog.Options{MaxEntityRows: 4})
		b := openMachine(t, to, 0, eventlog.Options{MaxEntityRows: 4, BlockBytes: 300})
		for round := range 3 {
			for range 150 {
				id, c, _ := src.next()
				a.Apply(id, []journal.Committed{c})
				if rng.IntN(10) == 0 {
					flush(t, a, from)
				}
			}
			flush(t, a, from)
			for id := range src.model.shards {
				_, in := exported(t, a, id)
				b.Install(id, uint32(round+1), in)
				if _, err := b.List(id, "x", "", "", 1); !errors.Is(err, eventlog.ErrInstalling) {
					t.Fatalf("a list under the install: %v", err)
				}
				all := func(sharding.EntityID, string, int64) bool { return false }
				if _, _, err := b.DueTimers(t.Context(), id, math.MaxInt64-1, 1, all); !errors.Is(err, eventlog.ErrInstalling) {
					t.Fatalf("due timers during the install: %v", err)
				}
				if _, err := b.TimersOf(t.Context(), id, sharding.EntityID{Type: "x", ID: "y"}, 1); !errors.Is(err, eventlog.ErrInstalling) {
					t.Fatalf("an entity's timers during the install: %v", err)
				}
			}
			work(t, b, to)
			checkMachine(t, b, src.model, rng)
			verifyStore(t, to)
		}
		for range 100 {
			id, c, want := src.next()
			if v := apply1(b, id, c); !errors.Is(v.Err, want) {
				t.Fatalf("verdict %v, want %v", v.Err, want)
			}
		}
		checkMachine(t, b, src.model, rng)
		flush(t, b, to)
		verifyStore(t, to)
		if n := b.UnflushedBytes() + b.Waiting(); n != 0 {
			t.Errorf("%d bytes are on their way for ever", n)
		}
	}
}

// Rows that are overwritten, deleted and compacted while a state is streamed
// are still in the stream.
func TestPinnedStateSurvivesCompaction(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{BlockBytes: 4 << 10})
	l := newLoad(1, 50, 10)
	for range 40 {
		id, c := l.entry(0)
		apply1(m, id, c)
	}
	flush(t, m, st)
	id, _ := l.entry(0)
	before, _ := exported(t, m, id)
	e, err := m.Pin(id)
	if err != nil {
		t.Fatal(err)
	}
	s := e.Stream()
	head := make([]byte, 1000)
	if _, err := io.ReadFull(s, head); err != nil {
		t.Fatal(err)
	}
	m.Drop(id, 1)
	work(t, m, st)
	other := newLoad(9, 50, 10)
	for tables := st.Watermark(); st.Watermark() < tables+3; {
		for range 200 {
			o, c := other.entry(8)
			apply1(m, o+50, c)
		}
		flush(t, m, st)
		m.Durable(map[sharding.ShardID]uint64{})
	}
	rest, err := io.ReadAll(s)
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(append(head, rest...), before) {
		t.Fatal("the state changed under the stream")
	}
}

// A later release may have keys that this release would lose. A snapshot with
// such keys stops the shard, and does so again after a restart. An incomplete
// snapshot makes the machine fail.
func TestUnknownClassesAreNotInstalled(t *testing.T) {
	for class, want := range map[string]error{"\x01new": journal.ErrUnsupported, "": journal.ErrDamaged} {
		st := openStore(t, filepath.Join(t.TempDir(), "store"), store.Options{})
		m := openMachine(t, st, 0, eventlog.Options{})
		src := &rows{keys: []string{class}}
		if class == "" {
			src.keys = nil // no rows, not even an applied record
		}
		data, err := io.ReadAll(statefile.NewWriter(statefile.Header{Shard: 3, Index: 9, Term: 2}, src))
		if err != nil {
			t.Fatal(err)
		}
		in := installOf(t, data)
		m.Install(3, 1, in)
		m.Apply(3, []journal.Committed{{Index: 10, Term: 2}})
		for m.Err() == nil && m.HasWork() {
			m.Work()
		}
		if want == journal.ErrDamaged {
			if !errors.Is(m.Err(), want) {
				t.Errorf("%q: %v", class, m.Err())
			}
			continue
		}
		for range 2 {
			if err := m.StopError(3); m.Err() != nil || !errors.Is(err, want) || m.Waiting() != 0 {
				t.Fatalf("%q: failed: %v, stopped: %v, %d bytes wait", class, m.Err(), err, m.Waiting())
			}
			if v := apply1(m, 3, journal.Committed{Index: 11, Term: 2}); !errors.Is(v.Err, eventlog.ErrStopped) {
				t.Errorf("%q: verdict %+v", class, v)
			}
			if v := apply1(m, 4, journal.Committed{Index: 11, Term: 2}); v.Err != nil {
				t.Errorf("%q: another shard: %v", class, v.Err)
			}
			if m, err = eventlog.Open(st, 0, eventlog.Options{Generations: []statefile.Generation{{Shard: 3, Generation: 1, Install: &in}}}); err != nil {
				t.Fatal(err)
			}
			if err := m.SetRecoveryTargets(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

type rows struct{ keys []string }

func (r *rows) Next() (key, value []byte, err error) {
	if len(r.keys) == 0 {
		return nil, nil, io.EOF
	}
	key, r.keys = []byte(r.keys[0]), r.keys[1:]
	return key, []byte("value"), nil
}

func (r *rows) Close() error { return nil }

// bigShard returns a machine with a shard of n entities with one record each.
func bigShard(b *testing.B, n int) (*eventlog.Machine, sharding.ShardID) {
	st := openStore(b, filepath.Join(b.TempDir(), "store"), store.Options{})
	m := openMachine(b, st, 0, eventlog.Options{})
	for i := 0; i < n; {
		data := journal.AppendEntryHeader(nil, journal.EntryRecords, 1, 1)
		for ; i < n && len(data) < 256<<10; i++ {
			data = journal.AppendRecord(data, &journal.Record{
				Entity: sharding.EntityID{Type: "thing", ID: fmt.Sprintf("entity-%08d", i)}, Term: 1, CommandID: "a-command", Reply: []byte("ok"),
				Events: []journal.Event{{Type: "happened", Payload: make([]byte, 400)}},
			})
		}
		if v := apply1(m, 1, journal.Committed{Index: uint64(i), Term: 1, Data: data}); v.Err != nil {
			b.Fatal(v.Err)
		}
		flush(b, m, st)
	}
	return m, 1
}

const benchEntities = 50_000

func BenchmarkExport(b *testing.B) {
	m, id := bigShard(b, benchEntities)
	data, _ := exported(b, m, id)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		e, err := m.Pin(id)
		if err != nil {
			b.Fatal(err)
		}
		s := e.Stream()
		if _, err := io.Copy(io.Discard, s); err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
	b.ReportMetric(float64(b.N)*benchEntities/b.Elapsed().Seconds(), "entities/s")
}

func BenchmarkInstall(b *testing.B) {
	m, id := bigShard(b, benchEntities)
	data, in := exported(b, m, id)
	st := openStore(b, filepath.Join(b.TempDir(), "to"), store.Options{})
	to := openMachine(b, st, 0, eventlog.Options{})
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	generation := uint32(0)
	for b.Loop() {
		generation++
		to.Install(id, generation, in)
		for to.Entities(id) == 0 {
			for to.HasWork() {
				to.Work()
			}
			flush(b, to, st)
		}
	}
	b.ReportMetric(float64(b.N)*benchEntities/b.Elapsed().Seconds(), "entities/s")
}
