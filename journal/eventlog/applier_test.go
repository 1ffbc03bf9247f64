package eventlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// collector stores results and reports when a shard's index was applied.
type collector struct {
	mu       sync.Mutex
	verdicts map[sharding.ShardID][]eventlog.ApplyResult
}

func (c *collector) OnApplied(vs []eventlog.ApplyResult) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.verdicts == nil {
		c.verdicts = make(map[sharding.ShardID][]eventlog.ApplyResult)
	}
	for _, v := range vs {
		c.verdicts[v.Shard] = append(c.verdicts[v.Shard], v)
	}
}

func startApplier(t *testing.T, m *eventlog.Machine, opts eventlog.ApplierOptions) *eventlog.Applier {
	t.Helper()
	if opts.Fatal == nil {
		opts.Fatal = func(err error) { t.Errorf("fatal: %v", err) }
	}
	a, err := eventlog.StartApplier(m, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeApplier(t, a) })
	return a
}

func closeApplier(t *testing.T, a *eventlog.Applier) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := a.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// Results arrive in order per shard, and after Close everything is in the
// store.
func TestApplierAppliesInOrderAndCloseFlushes(t *testing.T) {
	src := newSource(21, 3, 50)
	dir := filepath.Join(t.TempDir(), "store")
	st := openStore(t, dir, smallStore)
	m := openMachine(t, st, 0, eventlog.Options{})
	sink := &collector{}
	// With a queue of one byte, Apply blocks for each entry.
	a := startApplier(t, m, eventlog.ApplierOptions{Sink: sink, FlushBytes: 8 << 10, QueueBytes: 1})
	wants := make(map[sharding.ShardID][]error)
	for range 2000 {
		id, c, want := src.next()
		wants[id] = append(wants[id], want)
		a.Apply(id, []journal.Committed{c})
	}
	closeApplier(t, a)
	for id, want := range wants {
		got := sink.verdicts[id]
		if len(got) != len(want) {
			t.Fatalf("shard %d: %d verdicts, want %d", id, len(got), len(want))
		}
		for i := range got {
			if got[i].Index != uint64(i+1) {
				t.Fatalf("shard %d: verdict %d is of index %d", id, i, got[i].Index)
			}
			checkVerdict(t, got[i], want[i])
		}
	}
	if a.Backlog() != 0 || m.UnflushedBytes() != 0 || a.Flushes() < 10 {
		t.Fatalf("backlog %d, unflushed %d, flushes %d", a.Backlog(), m.UnflushedBytes(), a.Flushes())
	}
	verifyStore(t, st)
	checkMachine(t, m, src.model, src.rng)
	a.Apply(1, []journal.Committed{{Index: 1 << 40, Term: 1}})
	if a.Backlog() != 0 {
		t.Fatal("an entry after Close was kept")
	}
}

// Applied entries reach the store after the interval even if no more entries
// arrive.
func TestApplierFlushesWhenIdle(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{})
	timer := make(chan time.Time)
	var armed atomic.Int64
	a := startApplier(t, m, eventlog.ApplierOptions{Sink: &collector{}, After: func(time.Duration) <-chan time.Time {
		armed.Add(1)
		return timer
	}})
	a.Apply(1, []journal.Committed{{Index: 1, Term: 1, Data: entry(1, record("a", 0, journal.Hash{}, 1))}})
	waitFor(t, "the interval begins", func() bool { return armed.Load() == 1 })
	if a.Flushes() != 0 {
		t.Fatal("flushed before the interval")
	}
	timer <- time.Time{}
	waitFor(t, "the batch is written", func() bool { return a.Flushes() == 1 && a.Backlog() == 0 })
	if armed.Load() != 1 {
		t.Fatal("an idle applier waits for another interval")
	}
}

// A batch that no one waits for grows for several intervals. An awaited batch,
// or a batch that contains part of a generation, is written after the first
// interval.
func TestBatchesGrowIfNotAwaited(t *testing.T) {
	const patience = 4
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{})
	timer := make(chan time.Time)
	var armed atomic.Int64
	var awaited atomic.Bool
	a := startApplier(t, m, eventlog.ApplierOptions{
		Sink: &collector{}, FlushPatience: patience, Awaited: awaited.Load,
		After: func(time.Duration) <-chan time.Time { armed.Add(1); return timer },
	})
	src := newSource(5, 1, 3)
	var flushes uint64
	// written applies entries and checks that they are in the store after exactly
	// the given number of intervals.
	written := func(what string, intervals int, begin func()) {
		t.Helper()
		first := armed.Load()
		begin()
		for i := range intervals {
			waitFor(t, what+": an interval begins", func() bool { return armed.Load() == first+int64(i)+1 })
			if n := a.Flushes(); n != flushes {
				t.Fatalf("%s: %d batches after %d intervals, %d before", what, n, i, flushes)
			}
			timer <- time.Time{}
		}
		flushes++
		waitFor(t, what+": the batch is written", func() bool { return a.Flushes() == flushes })
	}
	apply := func() {
		id, c, _ := src.next()
		a.Apply(id, []journal.Committed{c})
	}
	written("nobody waits", patience, apply)
	written("nobody waits for the next one", patience, apply)
	awaited.Store(true)
	written("somebody waits", 1, apply)
	awaited.Store(false)
	written("nobody waits any more", patience, apply)
	written("a shard is taken away", 1, func() { a.Drop(1, 2) })
}

// The writer pauses between two parts of a batch for as long as the timer in
// its options says, unless too many bytes wait to be written or the Applier is
// closing.
func TestWriterPausesBetweenParts(t *testing.T) {
	const entries, size = 8, 40 << 10 // a part is 64 KiB
	big := func(from int) (out []journal.Committed) {
		for i := range entries {
			r := record(fmt.Sprint("e", from+i), 0, journal.Hash{}, 1)
			r.Events[0].Payload = bytes.Repeat([]byte{byte(i)}, size)
			out = append(out, journal.Committed{Index: uint64(from + i + 1), Term: 1, Data: entry(1, r)})
		}
		return out
	}
	for name, c := range map[string]struct {
		flush  int64
		pauses bool
	}{"in time": {entries * size / 2, true}, "behind": {entries * size / 8, false}} {
		t.Run(name, func(t *testing.T) {
			st := openStore(t, filepath.Join(t.TempDir(), "store"), store.Options{})
			m := openMachine(t, st, 0, eventlog.Options{})
			var pauses atomic.Int64
			rest := make(chan time.Time)
			a := startApplier(t, m, eventlog.ApplierOptions{
				Sink: &collector{}, FlushBytes: c.flush, FlushInterval: time.Hour,
				After: func(d time.Duration) <-chan time.Time {
					if d == time.Hour {
						return nil
					}
					pauses.Add(1)
					return rest
				},
			})
			a.Apply(1, big(0))
			seen := int64(0)
			for a.Flushes() == 0 {
				waitFor(t, "the batch is written, or the writer rests", func() bool { return pauses.Load() > seen || a.Flushes() > 0 })
				if a.Flushes() == 0 {
					seen++
					rest <- time.Time{}
				}
			}
			if c.pauses && seen < 3 || !c.pauses && seen > 0 {
				t.Errorf("%d rests", seen)
			}
			a.Apply(1, big(entries))
			closeApplier(t, a)
			if m.UnflushedBytes() != 0 {
				t.Error("not all is in the store")
			}
		})
	}
}

// A store failure ends the Applier and is reported once.
func TestStoreErrorIsFatal(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{})
	fatal := make(chan error, 2)
	a, err := eventlog.StartApplier(m, eventlog.ApplierOptions{Sink: &collector{}, FlushBytes: 1, Fatal: func(err error) { fatal <- err }})
	if err != nil {
		t.Fatal(err)
	}
	// The entity is in memory, so the operation that fails is the write.
	r := record("a", 0, journal.Hash{}, 1)
	a.Apply(1, []journal.Committed{{Index: 1, Term: 1, Data: entry(1, r)}})
	waitFor(t, "the first batch is written", func() bool { return a.Flushes() == 1 })
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	var chain journal.Chain
	a.Apply(1, []journal.Committed{{Index: 2, Term: 1, Data: entry(1, record("a", 1, chain.After(&r), 1))}})
	select {
	case err = <-fatal:
	case <-time.After(20 * time.Second):
		t.Fatal("no error")
	}
	if err == nil {
		t.Fatal("fatal without an error")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if got := a.Close(ctx); !errors.Is(got, err) {
		t.Fatalf("close says %v, fatal said %v", got, err)
	}
	a.Apply(1, []journal.Committed{{Index: 3, Term: 1}})
	if len(fatal) != 0 {
		t.Fatal("fatal twice")
	}
}

// Readers that race with applying and flushing see a growing prefix: each
// record once, no record missing, and at least the records that were applied
// before the readers started.
func TestReadersRaceFlushing(t *testing.T) {
	const entities, entries = 8, 3000
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{MaxEntityRows: 3, BlockBytes: 700})
	a := startApplier(t, m, eventlog.ApplierOptions{Sink: &collector{}, FlushBytes: 3000, FlushInterval: time.Millisecond})
	var last [entities]struct {
		seq  journal.Sequence
		hash journal.Hash
	}
	ids := make([]sharding.EntityID, entities)
	for i := range ids {
		ids[i] = sharding.EntityID{Type: "t", ID: fmt.Sprint("e", i)}
	}
	var done atomic.Bool
	var reads atomic.Int64
	var readers sync.WaitGroup
	for w := range 3 {
		readers.Go(func() {
			for i := w; !done.Load() && !t.Failed(); i++ {
				raceRead(t, m, ids[i%entities], w%2 == 0)
				raceList(t, m, entities)
				reads.Add(1)
			}
		})
	}
	var chain journal.Chain
	for i := range uint64(entries) {
		n := int(i*7) % entities
		r := record(ids[n].ID, last[n].seq, last[n].hash, int(i%3))
		last[n].seq, last[n].hash = r.Last(), chain.After(&r)
		a.Apply(1, []journal.Committed{{Index: i + 1, Term: 1, Data: entry(1, r)}})
	}
	waitFor(t, "everything is applied and readers had a turn", func() bool {
		index, _ := m.Applied(1)
		return index == entries && reads.Load() > 20 || t.Failed()
	})
	done.Store(true)
	readers.Wait()
	closeApplier(t, a)
	verifyStore(t, st)
}

func raceRead(t *testing.T, m *eventlog.Machine, e sharding.EntityID, order bool) {
	before, _, _, err := m.Head(1, e)
	if err != nil {
		t.Error(err)
	}
	var at journal.Position
	seq := journal.Sequence(0)
	err = m.Read(context.Background(), 1, e, 0, func(p journal.Position, rec *journal.Record) error {
		if !at.Less(p) || rec.Expected != seq {
			return fmt.Errorf("record at %v expects %d, after %v at %d", p, rec.Expected, at, seq)
		}
		at, seq = p, rec.Last()
		return nil
	})
	if err != nil || seq < before {
		t.Errorf("read %s to %d, its head was at %d: %v", e, seq, before, err)
	}
	if !order {
		return
	}
	events, last := 0, uint64(0)
	upTo, err := m.ReadOrder(context.Background(), 1, 0, func(row *store.OrderRow) error {
		if row.At.Index <= last {
			return fmt.Errorf("row %d after %d", row.At.Index, last)
		}
		last = row.At.Index
		events += row.Events
		return nil
	})
	want := 0
	for i := range upTo {
		want += int(i % 3)
	}
	if err != nil || events != want {
		t.Errorf("order up to %d has %d events, want %d: %v", upTo, events, want, err)
	}
}

func raceList(t *testing.T, m *eventlog.Machine, most int) {
	infos, err := m.List(1, "t", "", "", 100)
	if err != nil || len(infos) > most {
		t.Errorf("list has %d: %v", len(infos), err)
	}
	for i := 1; i < len(infos); i++ {
		if infos[i].Entity.ID <= infos[i-1].Entity.ID {
			t.Errorf("list has %s after %s", infos[i].Entity, infos[i-1].Entity)
		}
	}
}

// A subscriber that reads after each wake-up sees the last record.
func TestSubscriberSeesLastRecord(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{MaxSubscribers: 2})
	e := sharding.EntityID{Type: "t", ID: "a"}
	wake, cancel, err := m.Subscribe(1, e)
	if err != nil {
		t.Fatal(err)
	}
	other, cancelOther, err := m.Subscribe(1, sharding.EntityID{Type: "t", ID: "b"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Subscribe(2, e); !errors.Is(err, eventlog.ErrTooManySubscribers) {
		t.Fatalf("a third: %v", err)
	}
	cancelOther()
	cancelOther()
	if _, cancel2, err := m.Subscribe(2, e); err != nil {
		t.Fatalf("after one left: %v", err)
	} else {
		defer cancel2()
	}
	hash, seq := journal.Hash{}, journal.Sequence(0)
	var chain journal.Chain
	for i := range uint64(3) {
		r := record("a", seq, hash, 1)
		seq, hash = r.Last(), chain.After(&r)
		apply1(m, 1, journal.Committed{Index: 2*i + 1, Term: 1, Data: entry(1, r)})
		apply1(m, 1, journal.Committed{Index: 2*i + 2, Term: 1, Data: entry(2, r)}) // fenced
		if i == 1 {
			continue // two records share a wake-up
		}
		select {
		case <-wake:
		default:
			t.Fatalf("not woken by record %d", i)
		}
		if at, _, _, err := m.Head(1, e); at != seq || err != nil {
			t.Fatalf("woken before sequence %d can be read: %d %v", seq, at, err)
		}
	}
	cancel()
	apply1(m, 1, journal.Committed{Index: 7, Term: 1, Data: entry(1, record("a", seq, hash, 1))})
	if len(wake) != 0 || len(other) != 0 {
		t.Fatal("woken after cancel, or by another entity")
	}
}

// A subscriber of shards is woken by all their entities and by no other shard,
// and counts as one subscriber.
func TestShardSubscriberCountsOnce(t *testing.T) {
	st := openStore(t, filepath.Join(t.TempDir(), "store"), smallStore)
	m := openMachine(t, st, 0, eventlog.Options{MaxSubscribers: 2})
	wake, cancel, err := m.SubscribeOrder([]sharding.ShardID{1, 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, cancel, err := m.SubscribeOrder([]sharding.ShardID{2}); err != nil {
		t.Fatal(err)
	} else {
		cancel()
		cancel()
	}
	_, cancelEntity, err := m.Subscribe(1, sharding.EntityID{Type: "t", ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	defer cancelEntity()
	if _, _, err := m.SubscribeOrder([]sharding.ShardID{2}); !errors.Is(err, eventlog.ErrTooManySubscribers) {
		t.Fatalf("a third: %v", err)
	}
	for i, c := range []struct {
		shard  sharding.ShardID
		id     string
		term   uint64
		awaken bool
	}{
		{1, "a", 1, true}, {1, "b", 1, true}, {1, "c", 2, false}, {2, "d", 1, false}, {3, "e", 1, true},
	} {
		r := record(c.id, 0, journal.Hash{}, 1)
		apply1(m, c.shard, journal.Committed{Index: uint64(i + 1), Term: 1, Data: entry(sharding.Term(c.term), r)})
		woken := false
		select {
		case <-wake:
			woken = true
		default:
		}
		if woken != c.awaken {
			t.Errorf("%s in shard %d: woken %v", c.id, c.shard, woken)
		}
	}
	cancel()
	apply1(m, 1, journal.Committed{Index: 9, Term: 1, Data: entry(1, record("f", 0, journal.Hash{}, 1))})
	if len(wake) != 0 {
		t.Error("woken after cancel")
	}
}
