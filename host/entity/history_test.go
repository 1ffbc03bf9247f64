package entity

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/entity/window"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// latest is the history of an entity of a durable type: records with one state
// each, and a snapshot.
type latest struct {
	records  []journal.Record
	snapshot *journal.Snapshot
}

var one = sharding.EntityID{Type: "draft", ID: "d"}

// writes adds a record with a state of the given state version.
func (h *latest) writes(version int, state string) {
	h.records = append(h.records, journal.Record{
		Entity: one, Expected: journal.Sequence(len(h.records)), RecordedAt: 1, Module: journal.Digest{byte(version)}, CommandID: "c",
		Events: []journal.Event{{Type: manifest.StateEvent(version), Payload: []byte(state)}},
	})
}

func (h *latest) Read(_ context.Context, _ sharding.ShardID, _ sharding.EntityID, from journal.Sequence, fn func(*journal.Record, journal.Hash) error) error {
	for i := range h.records {
		if r := &h.records[i]; r.Last() >= from {
			if err := fn(r, journal.Hash{byte(r.Last())}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (h *latest) ReadSince(ctx context.Context, shard sharding.ShardID, id sharding.EntityID, s *journal.Snapshot, fn func(*journal.Record, journal.Hash) error) error {
	return h.Read(ctx, shard, id, s.Sequence+1, fn)
}

func (h *latest) Snapshot(context.Context, sharding.ShardID, sharding.EntityID, journal.SnapshotUse, journal.Sequence) (*journal.Snapshot, error) {
	return h.snapshot, nil
}

func (h *latest) IsAbsent(sharding.ShardID, sharding.EntityID) bool { return false }

func (h *latest) ReadRecent(ctx context.Context, shard sharding.ShardID, e sharding.EntityID, _, _ int, _ int64, _ func(int) error, fn func(*journal.Record, journal.Hash) error) (bool, error) {
	return false, h.Read(ctx, shard, e, 0, fn)
}

func (h *latest) PendingMessages(sharding.ShardID, sharding.EntityID) (n, asOf uint64, err error) {
	return 0, 0, nil
}

// loader is a guest that keeps the input of its last load.
type loader struct {
	Guest
	given abi.Request
	calls int
}

func (l *loader) Load(_ uint32, _ uint64, frames []byte) (bool, error) {
	l.calls++
	return true, abi.ParseRequest(&l.given, frames)
}

// of returns a durable type of a module, as a manifest describes it.
func of(module byte, version int, reads ...int) *Type {
	about := manifest.EntityType{Kind: manifest.DurableState, StateVersion: version}
	for _, v := range reads {
		about.ReadsStates = append(about.ReadsStates, manifest.StateForm{Version: v})
	}
	return &Type{Name: "draft", Durable: true, Digest: journal.Digest{module}, TypeRoutes: TypeRoutes{States: about.States()}}
}

// loads loads the entity into a guest of a type, and returns the guest's input.
func (h *latest) loads(t *testing.T, typ *Type) (abi.Request, int, error) {
	t.Helper()
	l := historyLoad{ID: one, Shard: 1, Type: typ}
	var chunks []*historyChunk
	l.Read(t.Context(), h, 1<<16, func(ch *historyChunk) error {
		chunks = append(chunks, ch)
		return nil
	})
	if len(chunks) != 1 || chunks[0].Err != nil || !chunks[0].Last {
		t.Fatalf("%d chunks, the first with %v", len(chunks), chunks[0].Err)
	}
	var s historyStep
	l.Step(&s, chunks[0])
	var g loader
	err := s.Do(&g, 1)
	return g.given, g.calls, err
}

// TestGuestGetsVersionOfForeignState checks that a guest gets the version of a
// state that another module stored, and that it gets no state that its module
// cannot read.
func TestGuestGetsVersionOfForeignState(t *testing.T) {
	var h latest
	h.writes(1, "old")
	for name, tt := range map[string]struct {
		typ    *Type
		told   uint64
		unread bool
	}{
		"its own":            {of(1, 0), 0, false},
		"its own, numbered":  {of(1, 1), 0, false},
		"one that it reads":  {of(2, 2, 1), 1, false},
		"one of two":         {of(3, 3, 2, 1), 1, false},
		"one it never heard": {of(2, 2), 0, true},
		"one of none it has": {of(4, 4, 3, 2), 0, true},
	} {
		given, calls, err := h.loads(t, tt.typ)
		if tt.unread {
			var unread *manifest.UnreadStateError
			if !errors.As(err, &unread) || unread.Version != 1 || calls != 0 {
				t.Errorf("%s: %v, %d calls", name, err, calls)
			}
			continue
		}
		if err != nil || string(given.Snapshot) != "old" || given.StateVersion != tt.told || given.Sequence != 1 {
			t.Errorf("%s: %v, it is given %q of version %d at %d", name, err, given.Snapshot, given.StateVersion, given.Sequence)
		}
	}
	h.writes(2, "new")
	if given, _, err := h.loads(t, of(2, 2, 1)); err != nil || string(given.Snapshot) != "new" || given.StateVersion != 0 || given.Sequence != 2 {
		t.Errorf("the newer state: %v, it is given %q of version %d at %d", err, given.Snapshot, given.StateVersion, given.Sequence)
	}
}

// TestForeignSnapshotProvidesOnlyPosition checks that a snapshot of another module
// only provides a position in the history, and that the state comes from the
// record there, whose version is known.
func TestForeignSnapshotProvidesOnlyPosition(t *testing.T) {
	for _, filter := range [][]byte{nil, make([]byte, 8)} {
		h := latest{snapshot: &journal.Snapshot{Entity: one, Sequence: 2, Hash: journal.Hash{2}, Module: journal.Digest{1}, Window: 2, Keep: 1, Filter: filter, State: []byte("made"), Stands: journal.Position{Index: 1}}}
		h.writes(1, "first")
		h.writes(1, "second")
		given, _, err := h.loads(t, of(2, 2, 1))
		if err != nil || string(given.Snapshot) != "second" || given.StateVersion != 1 || given.Sequence != 2 {
			t.Errorf("snapshot of a different module: %v, the guest gets %q of version %d at %d", err, given.Snapshot, given.StateVersion, given.Sequence)
		}
		given, _, err = h.loads(t, of(1, 1))
		if err != nil || string(given.Snapshot) != "made" || given.StateVersion != 0 {
			t.Errorf("snapshot of the same module: %v, the guest gets %q of version %d", err, given.Snapshot, given.StateVersion)
		}
	}
}

// TestHistoryChunksOfCommandsAreBounded checks records without events whose replies exceed
// the memory: no chunk exceeds its limit, chunks of commands have nothing for
// the guest, and no command is lost or duplicated.
func TestHistoryChunksOfCommandsAreBounded(t *testing.T) {
	h := &latest{}
	h.writes(1, `"first"`)
	const commands = 300
	for i := range commands {
		h.records = append(h.records, journal.Record{
			Entity: one, Expected: 1, RecordedAt: int64(2 + i), CommandID: journal.CommandID(fmt.Sprint("c", i)), Reply: make([]byte, 20_000),
		})
	}
	typ := of(1, 1)
	l := historyLoad{ID: one, Shard: 1, Type: typ}
	var seen window.Window
	limits := window.Limits{Commands: 1000, ReplyBytes: 1 << 30, ClientMaxAge: 1 << 60, ServerMaxAge: 1 << 60}
	var g loader
	chunks, last := 0, false
	l.Read(t.Context(), h, 1<<20, func(ch *historyChunk) error {
		if chunks++; ch.Err != nil || last {
			t.Fatal(ch.Err, last)
		}
		if n := ch.Seen.Bytes(); n > 128<<10+21_000 {
			t.Errorf("a chunk has %d bytes", n)
		}
		seen.AddAll(&limits, ch.Seen, func(bool) *window.Filter { return nil })
		if last = ch.Last; ch.Commands {
			return nil
		}
		var s historyStep
		l.Step(&s, ch)
		return s.Do(&g, 1)
	})
	if n := seen.Count(); n != commands+1 || !last || chunks < commands*20_000/(150<<10) || g.calls != 1 || string(g.given.Snapshot) != `"first"` {
		t.Errorf("%d commands in %d chunks, the last one came: %v; the guest got %d states, %q", n, chunks, last, g.calls, g.given.Snapshot)
	}
}

// during is a history whose Read calls do with the number of each record before
// it passes the record on.
type during struct {
	histories
	of *latest
	do func(n int)
}

func (d during) Read(ctx context.Context, shard sharding.ShardID, id sharding.EntityID, from journal.Sequence, fn func(*journal.Record, journal.Hash) error) error {
	n := 0
	return d.of.Read(ctx, shard, id, from, func(r *journal.Record, after journal.Hash) error {
		n++
		d.do(n)
		return fn(r, after)
	})
}

func (d during) Snapshot(context.Context, sharding.ShardID, sharding.EntityID, journal.SnapshotUse, journal.Sequence) (*journal.Snapshot, error) {
	return nil, nil
}

func (d during) ReadRecent(ctx context.Context, shard sharding.ShardID, e sharding.EntityID, _, _ int, _ int64, _ func(int) error, fn func(*journal.Record, journal.Hash) error) (bool, error) {
	return false, d.Read(ctx, shard, e, 0, fn)
}

func (d during) PendingMessages(sharding.ShardID, sharding.EntityID) (n, asOf uint64, err error) {
	return 0, 0, nil
}

// TestLongReadingsTakeTurns checks that a load needs a turn once it has read
// costlyBytes, gives up the turn while it waits for the executor, and ends
// without a turn if it is cancelled.
func TestLongReadingsTakeTurns(t *testing.T) {
	h := &latest{}
	h.writes(1, `"first"`)
	const commands, size = 200, 20_000
	for i := range commands {
		h.records = append(h.records, journal.Record{
			Entity: one, Expected: 1, RecordedAt: int64(2 + i), CommandID: journal.CommandID(fmt.Sprint("c", i)), Reply: make([]byte, size),
		})
	}
	turns := make(chan struct{}, 1)
	begin := func(do func(n int)) *load {
		b := &base{opts: Options{Histories: during{of: h, do: do}, LoadChunkBytes: 128 << 10, longReads: turns}}
		l := &load{historyLoad: historyLoad{ID: one, Shard: 1, Type: of(1, 1)}, entity: &entity{shard: &shard{base: b}}, credit: make(chan struct{}, 2)}
		l.ctx, l.cancel = context.WithCancel(t.Context())
		return l
	}

	withTurn := 0
	l := begin(func(int) { withTurn += len(turns) })
	chunks := make(chan *historyChunk)
	go l.Do(t.Context(), func(e coreEvent) { chunks <- e.chunk })
	for n, last := 1, false; !last; n++ {
		if n > 2 { // the load waits for the executor, so others can have the turn
			turns <- struct{}{}
			<-turns
			l.grantChunk()
		}
		last = (<-chunks).Last
	}
	if beyond := commands - costlyBytes/size; l.read < commands*size || withTurn < beyond/2 {
		t.Errorf("%d bytes were read, %d records of them with a turn, want about %d", l.read, withTurn, beyond)
	}

	turns <- struct{}{} // the turn of another load
	l = begin(func(n int) {
		if n > costlyBytes/size { // so the next record needs a turn
			l.cancel()
		}
	})
	l.Do(t.Context(), func(e coreEvent) {
		if e.chunk.Last {
			t.Error("a load ended that had no turn")
		}
		l.grantChunk()
	})
	if l.read > costlyBytes+3*size {
		t.Errorf("a load without a turn read %d bytes", l.read)
	}
}

// skipping is the history of an entity without events. Loads read only its last
// records.
type skipping struct {
	latest
	limits window.Limits // limits of the last ReadRecent
}

func (s *skipping) ReadRecent(_ context.Context, _ sharding.ShardID, _ sharding.EntityID, commands, replyBytes int, age int64, _ func(int) error, fn func(*journal.Record, journal.Hash) error) (bool, error) {
	s.limits = window.Limits{Commands: commands, ReplyBytes: replyBytes, ClientMaxAge: age}
	for i := len(s.records) - 2; i < len(s.records); i++ {
		if err := fn(&s.records[i], journal.Hash{}); err != nil {
			return true, err
		}
	}
	return true, nil
}

// TestSkippedRecordsCountAsForgotten checks that a load of an entity without
// events reads only as many records as the window can hold, and that no retry
// is executed whose first attempt may be among the skipped records.
func TestSkippedRecordsCountAsForgotten(t *testing.T) {
	h := &skipping{}
	for i := range 5 {
		h.records = append(h.records, journal.Record{Entity: one, RecordedAt: int64(10 + i), CommandID: journal.CommandID(fmt.Sprint("c", i))})
	}
	l := historyLoad{ID: one, Shard: 1, Type: of(1, 1), Limits: window.DefaultLimits()}
	var before int64
	skipped := false
	l.Read(t.Context(), h, 1<<20, func(ch *historyChunk) error {
		skipped = skipped || ch.Seen.Skipped
		if before = max(before, ch.Seen.Before); ch.Err != nil || ch.Last && (!ch.Exists || ch.Sequence != 0) {
			t.Errorf("%+v", ch)
		}
		return nil
	})
	if all := window.DefaultLimits(); before != 13 || !skipped || h.limits.Commands != all.Commands || h.limits.ReplyBytes != all.ReplyBytes || h.limits.ClientMaxAge != all.ClientMaxAge {
		t.Errorf("commands before %d are unknown, limits %+v", before, h.limits)
	}
	run := of(1, 1)
	run.Workflow = true
	l = historyLoad{ID: one, Shard: 1, Type: run, Limits: window.DefaultLimits()}
	h.limits = window.Limits{}
	l.Read(t.Context(), h, 1<<20, func(*historyChunk) error { return nil })
	if h.limits.Commands != 0 {
		t.Error("the first record of a run was skipped, which has its chain")
	}
}
