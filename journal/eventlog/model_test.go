package eventlog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/eventlog/outbox"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// model specifies Machine in the simplest way: it keeps every record of every
// entity decoded in memory.
//
// Machine divides the same state between rows in its memtable, batches in
// flight and the store, packs records into blocks, and evicts entity rows. None
// of that may be visible. The model therefore has no rows, blocks, batches or
// caches, so that it is easy to see that it is right. Tests apply the entries of
// a source to both, flush or crash the Machine at any point, and compare every
// apply result and everything that can be read (checkMachine).
//
// Two things that the Machine defers are part of its specification, because
// replicas must do them at the same entry: the deletion of many timers of a
// deleted entity (left), and the truncation of a history (cutTo). An entry does
// a bounded part of them, after its own changes (workOff).
type model struct {
	shards map[sharding.ShardID]*modelShard
}

type modelShard struct {
	index    uint64
	term     sharding.Term
	clock    int64
	revision uint64
	entities map[sharding.EntityID]*modelEntity
	rows     []string // the event order, as text
	rowIndex []uint64
	rowAt    []journal.Position
	rowMark  []uint32 // chain fingerprints
	messages modelMessages
	changes  int // number of timer changes in the current entry
}

type modelEntity struct {
	seq     journal.Sequence
	hash    journal.Hash
	deleted bool
	stopped bool
	run     *journal.RunStatus // nil if the entity is not a run
	began   int64              // when the run began
	cut     int                // number of truncated records
	snaps   []journal.Snapshot
	timers  map[string]journal.Timer
	lives   modelLives       // used while an entry is checked
	left    int              // timers of earlier incarnations that are not deleted yet
	cutTo   journal.Sequence // records before it are to be truncated
	records [][]byte
	at      []journal.Position
	last    []journal.Sequence
}

func newModel() *model { return &model{shards: make(map[sharding.ShardID]*modelShard)} }

func (t *model) shard(id sharding.ShardID) *modelShard {
	if t.shards[id] == nil {
		t.shards[id] = &modelShard{entities: make(map[sharding.EntityID]*modelEntity)}
	}
	return t.shards[id]
}

// apply applies an entry and returns the error that its apply result must wrap,
// or nil for success. Like Machine, it then does some of the deletions that
// earlier entries have deferred.
func (t *model) apply(id sharding.ShardID, c journal.Committed) error {
	sh := t.shard(id)
	sh.changes = 0
	err := sh.applyEntry(c)
	if err != nil {
		sh.changes = 0
	}
	sh.workOff()
	return err
}

// workOff does deferred deletions for the first entity, in key order, that has
// any.
func (sh *modelShard) workOff() {
	var first *modelEntity
	key := ""
	for e, ent := range sh.entities {
		if k := string(store.AppendEntityID(nil, e)); (ent.left > 0 || ent.cutTo > 0) && (first == nil || k < key) {
			first, key = ent, k
		}
	}
	switch {
	case first == nil:
	case first.left > 0:
		first.left = max(0, first.left-256-sh.changes)
	default:
		first.truncate()
	}
}

// truncate truncates all records before cutTo. Tests have fewer records than
// Machine truncates for one entry.
func (t *modelEntity) truncate() {
	cut := t.cut
	for n := t.cut; n < len(t.last) && t.last[n] < t.cutTo; n++ {
		cut = n + 1
	}
	if cut > t.cut && t.last[cut-1] > 0 {
		t.cut = cut
	}
	t.cutTo = 0
}

func (sh *modelShard) applyEntry(c journal.Committed) error {
	sh.index, sh.term = c.Index, c.Term
	if len(c.Data) == 0 {
		return nil
	}
	e, err := journal.DecodeEntry(c.Data)
	if err != nil {
		panic(err)
	}
	if e.Fence != c.Term {
		return eventlog.ErrFenced
	}
	if e.Kind == journal.EntryBindings {
		if len(e.Body) != 8 {
			return eventlog.ErrInvalid
		}
		r, _ := e.BindingsRevision()
		sh.revision = max(sh.revision, r)
		return nil
	}
	if e.Kind == journal.EntrySnapshot {
		return sh.snapshot(e.Body, e.Paced)
	}
	if e.Kind == journal.EntryWork {
		return nil
	}
	messages := sh.messages
	if e.Kind == journal.EntryOutbox {
		return sh.steps(messages, c.Index, e.Body)
	}
	type step struct {
		rec journal.Record
		raw []byte
	}
	var steps []step
	after := make(map[sharding.EntityID]modelEntity)
	var chain journal.Chain
	for body := e.Body; len(body) > 0; {
		raw, rest, err := journal.SplitRecord(body)
		if err != nil {
			panic(err)
		}
		body = rest
		var r journal.Record
		if err := r.Decode(raw); err != nil {
			panic(err)
		}
		r.Sections = slices.Clone(r.Sections)
		at, ok := after[r.Entity]
		cur := sh.entities[r.Entity]
		if !ok && cur != nil {
			at = modelEntity{seq: cur.seq, hash: cur.hash, lives: modelLives{before: len(cur.timers)}}
		}
		switch {
		case r.Term != c.Term:
			return eventlog.ErrFenced
		case r.Expected != at.seq:
			return eventlog.ErrSequence
		case r.Prev != at.hash:
			return eventlog.ErrChain
		case !at.lives.fires(cur, &r):
			return eventlog.ErrInvalid
		case !messages.record(&r, journal.ItemID{Index: c.Index, Ordinal: uint32(len(steps))}):
			return eventlog.ErrInvalid
		}
		at.lives.record(&r, e.Paced)
		at.seq, at.hash = r.Last(), chain.After(&r)
		after[r.Entity] = at
		steps = append(steps, step{r, raw})
	}
	messages.owned = false
	sh.messages = messages
	for i := range steps {
		if ent := sh.entities[steps[i].rec.Entity]; ent != nil {
			ent.lives = modelLives{before: len(ent.timers)}
		}
	}
	for i, s := range steps {
		ent := sh.entities[s.rec.Entity]
		if ent == nil {
			ent = &modelEntity{}
			sh.entities[s.rec.Entity] = ent
		}
		at := journal.Position{Index: c.Index, Ordinal: uint32(i)}
		ent.seq, ent.hash = s.rec.Last(), chain.After(&s.rec)
		if ent.deleted = s.rec.Flags&journal.FlagTombstone != 0; ent.deleted {
			ent.snaps = nil
		}
		ent.stopped = s.rec.Flags&journal.FlagStopped != 0
		ent.changeRun(&s.rec)
		sh.changes += ent.changeTimers(&s.rec, e.Paced)
		ent.records = append(ent.records, bytes.Clone(s.raw))
		ent.at, ent.last = append(ent.at, at), append(ent.last, ent.seq)
		sh.clock = max(sh.clock, s.rec.RecordedAt)
		if len(s.rec.Events) > 0 {
			sh.rows = append(sh.rows, rowOf(at, &s.rec))
			sh.rowIndex = append(sh.rowIndex, c.Index)
			sh.rowAt = append(sh.rowAt, at)
			sh.rowMark = append(sh.rowMark, ent.hash.Fingerprint())
		}
	}
	return nil
}

// changeRun applies the run status in a record, if the record has one.
func (t *modelEntity) changeRun(r *journal.Record) {
	data := r.Section(journal.SectionRun)
	switch {
	case r.Flags&journal.FlagTombstone != 0:
		t.run = nil
	case data != nil:
		if t.run == nil || t.run.State != journal.RunRunning {
			t.began = r.RecordedAt
		}
		s, err := journal.DecodeRunStatus(data)
		if err != nil {
			panic(err)
		}
		t.run = &s
	}
}

// fires reports whether the timer that caused a record was set before the
// entry. It returns true for records that no timer caused.
func (l *modelLives) fires(t *modelEntity, r *journal.Record) bool {
	data := r.Section(journal.SectionSource)
	if data == nil || data[0] != journal.SourceTimer {
		return true
	}
	s, err := journal.DecodeTimerSource(data)
	if err != nil {
		panic(err)
	}
	if t == nil || l.ended {
		return false
	}
	timer, ok := t.timers[string(s.Name)]
	return ok && timer.Due == s.Due
}

// changeTimers applies the timer changes of a record and returns their number.
func (t *modelEntity) changeTimers(r *journal.Record, paced bool) (changes int) {
	if t.timers == nil {
		t.timers = make(map[string]journal.Timer)
	}
	if data := r.Section(journal.SectionSource); data != nil && data[0] == journal.SourceTimer {
		s, _ := journal.DecodeTimerSource(data)
		delete(t.timers, string(s.Name))
		changes++
	}
	schedules := map[int]*journal.Schedule{}
	for data := r.Section(journal.SectionSchedules); len(data) > 0; {
		op, rest, err := journal.NextScheduleOp(bytes.Clone(data))
		if err != nil {
			panic(err)
		}
		schedules[int(op.Op)], data = &op.Schedule, rest
	}
	trace := traceOf(r)
	if trace != nil && trace.Flags&journal.TraceAfterTimer != 0 {
		trace = nil
	}
	for n, ops := 0, r.Section(journal.SectionTimers); len(ops) > 0; n++ {
		op, rest, err := journal.NextTimerOp(ops)
		if err != nil {
			panic(err)
		}
		ops = rest
		changes++
		if delete(t.timers, string(op.Name)); !op.Cancel {
			t.timers[string(op.Name)] = journal.Timer{
				Entity: r.Entity, Name: string(op.Name), Due: op.Due, Command: bytes.Clone(op.Command), Payload: bytes.Clone(op.Payload), Schedule: schedules[n], Trace: trace,
			}
		}
	}
	if t.lives.record(r, paced) {
		t.left += len(t.timers)
	}
	if t.deleted {
		t.timers = nil
	}
	return changes
}

// modelLives counts timers, to determine whether a deletion must leave an
// entity's timers to later entries because there are too many.
type modelLives struct {
	before int // timers of this incarnation before the entry
	said   int // timer changes of this incarnation in the entry
	ended  bool
}

func (l *modelLives) record(r *journal.Record, paced bool) (ends bool) {
	if data := r.Section(journal.SectionSource); data != nil && data[0] == journal.SourceTimer {
		l.said++
	}
	for ops := r.Section(journal.SectionTimers); len(ops) > 0; l.said++ {
		_, rest, err := journal.NextTimerOp(ops)
		if err != nil {
			panic(err)
		}
		ops = rest
	}
	if ends = paced && r.Flags&journal.FlagTombstone != 0 && (l.before > 16 || l.said > 16); ends {
		*l = modelLives{ended: true}
	}
	return ends
}

func (sh *modelShard) snapshot(body []byte, paced bool) error {
	var s journal.Snapshot
	if err := s.Decode(bytes.Clone(body)); err != nil {
		panic(err)
	}
	ent := sh.entities[s.Entity]
	switch {
	case ent == nil || ent.deleted || ent.seq != s.Sequence:
		return eventlog.ErrSequence
	case ent.hash != s.Hash:
		return eventlog.ErrChain
	}
	if n := len(ent.snaps); n > 0 && ent.snaps[n-1].Sequence == s.Sequence {
		ent.snaps = ent.snaps[:n-1]
	}
	if len(s.Filter) > 0 {
		s.Stands = ent.at[len(ent.at)-1]
	}
	ent.snaps = append(ent.snaps, s)
	ent.snaps = ent.snaps[max(0, len(ent.snaps)-int(s.Keep)):]
	if !paced {
		ent.retain(s.Retain)
	} else if to := s.CutBefore(ent.snaps[0].Window); to > ent.gone()+1 {
		ent.cutTo = max(ent.cutTo, to)
	}
	return nil
}

// retain truncates records. It keeps the idempotency window of the oldest kept
// snapshot, and the records of the last events.
func (t *modelEntity) retain(retain uint64) {
	if retain == 0 {
		return
	}
	cut := t.cut
	for n := t.cut; n < len(t.last) && t.last[n] < t.snaps[0].Window && uint64(t.last[n])+retain < uint64(t.seq)+2; n++ {
		cut = n + 1
	}
	if cut > t.cut && t.last[cut-1] > 0 {
		t.cut = cut
	}
}

// gone returns the sequence of the last truncated event.
func (t *modelEntity) gone() journal.Sequence {
	if t.cut == 0 {
		return 0
	}
	return t.last[t.cut-1]
}

func rowOf(at journal.Position, r *journal.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d.%d %s %d+%d", at.Index, at.Ordinal, r.Entity, r.Expected+1, len(r.Events))
	for i, e := range r.Events {
		for _, tag := range e.Tags {
			fmt.Fprintf(&b, " %d:%s", int(r.Expected)+1+i, tag)
		}
	}
	return b.String()
}

func rowText(r *store.OrderRow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d.%d %s/%s %d+%d", r.At.Index, r.At.Ordinal, r.Type, r.ID, r.First, r.Events)
	r.Tags(func(seq journal.Sequence, tag []byte) { fmt.Fprintf(&b, " %d:%s", seq, tag) })
	return b.String()
}

// checkVerdict compares an apply result with the expected result.
func checkVerdict(t *testing.T, v eventlog.ApplyResult, want error) {
	t.Helper()
	if want == nil && v.Err != nil || want != nil && !errors.Is(v.Err, want) {
		t.Fatalf("shard %d index %d: verdict %v, want %v", v.Shard, v.Index, v.Err, want)
	}
}

// checkMachine compares everything that can be read with the model.
func checkMachine(t *testing.T, m *eventlog.Machine, want *model, rng *rand.Rand) {
	t.Helper()
	for id, sh := range want.shards {
		if index, term := m.Applied(id); index != sh.index || term != sh.term {
			t.Fatalf("shard %d: applied %d of term %d, want %d of %d", id, index, term, sh.index, sh.term)
		}
		if c := m.Clock(id); c != sh.clock {
			t.Fatalf("shard %d: clock %d, want %d", id, c, sh.clock)
		}
		if r := m.BindingRevision(id); r != sh.revision {
			t.Fatalf("shard %d: binding revision %d, want %d", id, r, sh.revision)
		}
		live := uint64(0)
		for e, ent := range sh.entities {
			checkEntity(t, m, id, e, ent, rng)
			if !ent.deleted {
				live++
			}
		}
		if n := m.Entities(id); n != live {
			t.Fatalf("shard %d: %d entities, want %d", id, n, live)
		}
		checkAbsent(t, m, id, sh, rng)
		checkList(t, m, id, sh, rng)
		checkRuns(t, m, id, sh, rng)
		checkOrder(t, m, id, sh, rng)
		checkTimers(t, m, id, sh, rng)
		checkMessages(t, m, id, sh, rng)
	}
}

// checkAbsent checks that IsAbsent returns true only for entities that never
// had a record. Deleted entities are not absent.
func checkAbsent(t *testing.T, m *eventlog.Machine, id sharding.ShardID, want *modelShard, rng *rand.Rand) {
	t.Helper()
	for e := range want.entities {
		if m.IsAbsent(id, e) {
			t.Fatalf("%s of shard %d is absent, and has records", e, id)
		}
	}
	e := sharding.EntityID{Type: "t", ID: "never-" + strconv.Itoa(rng.IntN(100))}
	if has := want.entities[e] != nil; has || want.index > 0 && !m.IsAbsent(id, e) {
		t.Fatalf("%s of shard %d is not known to be absent", e, id)
	}
}

func checkEntity(t *testing.T, m *eventlog.Machine, id sharding.ShardID, e sharding.EntityID, want *modelEntity, rng *rand.Rand) {
	t.Helper()
	seq, hash, exists, err := m.Head(id, e)
	if err != nil || seq != want.seq || hash != want.hash || exists == want.deleted {
		t.Fatalf("head of %s: %d %v %v %v, want %d %v deleted %v", e, seq, hash, exists, err, want.seq, want.hash, want.deleted)
	}
	checkSnapshots(t, m, id, e, want)
	checkRecent(t, m, id, e, want, rng.IntN(8), rng.IntN(100))
	for _, from := range []journal.Sequence{0, journal.Sequence(rng.Uint64N(uint64(want.seq) + 2))} {
		first := want.cut
		for first < len(want.last) && want.last[first] < from {
			first++
		}
		if from < want.gone() {
			var cut *journal.TruncatedError
			err := m.Read(context.Background(), id, e, from, func(journal.Position, *journal.Record) error { return nil })
			if !errors.As(err, &cut) || cut.First != want.gone()+1 {
				t.Fatalf("read %s from %d: %v, it was cut up to %d", e, from, err, want.gone())
			}
			continue
		}
		i := first
		err := m.Read(context.Background(), id, e, from, func(at journal.Position, rec *journal.Record) error {
			if i == len(want.records) {
				return fmt.Errorf("a record too many, at %v", at)
			}
			if at != want.at[i] || !bytes.Equal(journal.AppendRecord(nil, rec), want.records[i]) {
				return fmt.Errorf("record %d at %v differs, want the one at %v", i, at, want.at[i])
			}
			i++
			return nil
		})
		if err != nil || i != len(want.records) {
			t.Fatalf("read %s from %d: %d of %d records: %v", e, from, i-first, len(want.records)-first, err)
		}
	}
}

// checkSnapshots compares every snapshot that a load could request.
func checkSnapshots(t *testing.T, m *eventlog.Machine, id sharding.ShardID, e sharding.EntityID, want *modelEntity) {
	t.Helper()
	for module := range byte(2) {
		below := journal.Sequence(0)
		for i := len(want.snaps); i >= 0; i-- {
			var next *journal.Snapshot
			if i > 0 {
				if next = &want.snaps[i-1]; next.Module != (journal.Digest{module}) {
					continue
				}
			}
			got, err := m.Snapshot(context.Background(), id, e, journal.SnapshotsBy(journal.Digest{module}), below)
			if err != nil || (got == nil) != (next == nil) {
				t.Fatalf("snapshot of %s by module %d below %d: %+v %v, want %+v", e, module, below, got, err, next)
			}
			if next != nil {
				if !bytes.Equal(journal.AppendSnapshot(nil, got), journal.AppendSnapshot(nil, next)) {
					t.Fatalf("snapshot of %s below %d: %+v, want %+v", e, below, got, next)
				}
				below = next.Sequence
				if i < len(want.snaps) {
					if got.Stands != (journal.Position{}) {
						t.Fatalf("snapshot of %s below %d is not the newest, and stands at %v", e, below, got.Stands)
					}
					continue
				}
				checkSince(t, m, id, e, got, want)
			}
		}
	}
}

// checkSince compares the records that are read after the newest snapshot.
func checkSince(t *testing.T, m *eventlog.Machine, id sharding.ShardID, e sharding.EntityID, s *journal.Snapshot, want *modelEntity) {
	t.Helper()
	if stands := want.snaps[len(want.snaps)-1].Stands; s.Stands != stands {
		t.Fatalf("snapshot of %s at %d stands at %v, want %v", e, s.Sequence, s.Stands, stands)
	}
	if s.Stands == (journal.Position{}) {
		return
	}
	i := len(want.at)
	for i > 0 && s.Stands.Less(want.at[i-1]) {
		i--
	}
	err := eventlog.History{Machine: m}.ReadSince(context.Background(), id, e, s, func(rec *journal.Record, _ journal.Hash) error {
		if i == len(want.records) || !bytes.Equal(journal.AppendRecord(nil, rec), want.records[i]) {
			return fmt.Errorf("record %d of %d differs", i, len(want.records))
		}
		i++
		return nil
	})
	if err != nil || i != len(want.records) {
		t.Fatalf("read %s since %v: up to %d of %d records: %v", e, s.Stands, i, len(want.records), err)
	}
}

// checkRuns compares the status of every run, and the index of open runs with a
// page of it.
func checkRuns(t *testing.T, m *eventlog.Machine, id sharding.ShardID, sh *modelShard, rng *rand.Rand) {
	t.Helper()
	open := map[string][]string{}
	for e, ent := range sh.entities {
		info, err := m.Info(id, e)
		if err != nil {
			t.Fatal(err)
		}
		got, err := info.Run.Status()
		want, began := journal.RunStatus{}, int64(0)
		if ent.run != nil {
			want, began = *ent.run, ent.began
		}
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) || info.Run.Began() != began {
			t.Fatalf("run of %s: %+v since %d, %v, want %+v since %d", e, got, info.Run.Began(), err, want, began)
		}
		if want.State == journal.RunRunning {
			open[e.Type] = append(open[e.Type], e.ID)
		}
	}
	prefix := []string{"", "e", "e 1", "x"}[rng.IntN(4)]
	after := ""
	if rng.IntN(2) == 0 {
		after = fmt.Sprintf("e %d", rng.IntN(50))
	}
	limit := 1 + rng.IntN(20)
	for _, typ := range []string{"account", "cart", "a"} {
		if n, err := m.OpenRuns(id, typ); err != nil || n != uint64(len(open[typ])) {
			t.Fatalf("shard %d: %d open runs of %s, %v, want %d", id, n, typ, err, len(open[typ]))
		}
		want := slices.DeleteFunc(open[typ], func(e string) bool { return e <= after || !strings.HasPrefix(e, prefix) })
		slices.Sort(want)
		want = want[:min(limit, len(want))]
		if got, err := m.ListRuns(id, outbox.RunQuery{Type: typ, IDPrefix: prefix, After: after, Limit: limit}); err != nil || !slices.Equal(got, want) {
			t.Fatalf("open runs of %s in shard %d, prefix %q after %q limit %d:\n got %q, %v\nwant %q", typ, id, prefix, after, limit, got, err, want)
		}
	}
}

// checkRecent compares the records that a load without a snapshot reads. It
// reads all records, except that for an entity that never had an event it reads
// a tail with enough commands or bytes of replies.
func checkRecent(t *testing.T, m *eventlog.Machine, id sharding.ShardID, e sharding.EntityID, want *modelEntity, commands, replyBytes int) {
	t.Helper()
	if want.gone() > 0 {
		return
	}
	var got [][]byte
	clients, replies, size := 0, 0, 0
	skipped, err := eventlog.History{Machine: m}.ReadRecent(context.Background(), id, e, commands, replyBytes, 1<<62, nil, func(rec *journal.Record, _ journal.Hash) error {
		got = append(got, journal.AppendRecord(nil, rec))
		size += len(got[len(got)-1])
		if !rec.Internal() {
			clients, replies = clients+1, replies+len(rec.Reply)
		}
		return nil
	})
	all := want.records[want.cut:]
	switch {
	case err != nil || len(got) > len(all) || !slices.EqualFunc(got, all[len(all)-len(got):], bytes.Equal):
		t.Fatalf("the recent records of %s: %d of %d: %v", e, len(got), len(all), err)
	case skipped != (len(got) < len(all)):
		t.Fatalf("%d of %d records of %s, skipped %v", len(got), len(all), e, skipped)
	case skipped && (want.seq > 0 || clients <= commands && replies <= replyBytes && len(got) <= 4*commands && size <= 8*replyBytes):
		t.Fatalf("%d of %d records of %s at %d have %d commands and %d bytes of replies, want more than %d or %d", len(got), len(all), e, want.seq, clients, replies, commands, replyBytes)
	}
	if skipped {
		recentSkips.Add(1)
	}
}

// recentSkips counts the reads that skipped records, so that a test can check
// that the model has entities without events.
var recentSkips atomic.Int64

func checkList(t *testing.T, m *eventlog.Machine, id sharding.ShardID, sh *modelShard, rng *rand.Rand) {
	t.Helper()
	prefix := []string{"", "e", "e 1", "x"}[rng.IntN(4)]
	after := ""
	if rng.IntN(2) == 0 {
		after = fmt.Sprintf("e %d", rng.IntN(50))
	}
	limit := 1 + rng.IntN(20)
	var want, existing []string
	for e, ent := range sh.entities {
		if e.Type == "cart" && !ent.deleted && !ent.stopped && e.ID > after {
			existing = append(existing, e.ID)
		}
		if e.Type == "cart" && !ent.deleted && strings.HasPrefix(e.ID, prefix) && e.ID > after {
			want = append(want, fmt.Sprintf("%s %d", e, ent.seq))
		}
	}
	slices.Sort(existing)
	existing = existing[:min(limit, len(existing))]
	if got, err := m.ListExisting(t.Context(), id, "cart", after, limit); err != nil || !slices.Equal(got, existing) {
		t.Fatalf("existing in shard %d after %q: %q %v, want %q", id, after, got, err, existing)
	}
	slices.Sort(want)
	want = want[:min(limit, len(want))]
	infos, err := m.List(id, "cart", prefix, after, limit)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, info := range infos {
		got = append(got, fmt.Sprintf("%s %d", info.Entity, info.Sequence))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("list of shard %d, prefix %q after %q limit %d:\n got %q\nwant %q", id, prefix, after, limit, got, want)
	}
}

// checkRange reads the event order from any position, with a correct or a wrong
// fingerprint. Rows written at an earlier cluster version have no fingerprint.
func checkRange(t *testing.T, m *eventlog.Machine, id sharding.ShardID, sh *modelShard, rng *rand.Rand) {
	t.Helper()
	before := func(p eventlog.OrderPlace) (uint32, int) {
		for i, at := range slices.Backward(sh.rowAt) {
			if at.Less(p.At) || p.Behind && at == p.At {
				return sh.rowMark[i], i + 1
			}
		}
		return journal.Hash{}.Fingerprint(), 0
	}
	from := eventlog.OrderPlace{At: journal.Position{Index: rng.Uint64N(sh.index + 2)}}
	if len(sh.rowAt) > 0 && rng.IntN(2) == 0 {
		from = eventlog.OrderPlace{At: sh.rowAt[rng.IntN(len(sh.rowAt))], Behind: rng.IntN(2) == 0}
	}
	known, rows := before(from)
	q := eventlog.OrderRange{From: from, UpTo: rng.Uint64N(sh.index + 2)}
	right := rng.IntN(3) > 0
	if q.Fingerprint = known; !right {
		q.Fingerprint++
	}
	var got []string
	upTo, fingerprint, err := m.ReadOrderRange(t.Context(), id, q, func(row *store.OrderRow) error {
		got = append(got, rowText(row))
		return nil
	})
	if errors.Is(err, journal.ErrOtherHistory) && !right {
		return
	}
	end := max(sh.index, max(from.At.Index, 1)-1)
	end = min(end, max(q.UpTo, max(from.At.Index, 1)-1))
	if err != nil || upTo != end {
		t.Fatalf("%+v of shard %d: up to %d, want %d: %v", q, id, upTo, end, err)
	}
	var want []string
	for i, at := range sh.rowAt {
		if at.Index >= from.At.Index && at.Index <= end {
			want = append(want, sh.rows[i])
			if i >= rows {
				known = sh.rowMark[i]
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%+v of shard %d:\n got %q\nwant %q", q, id, got, want)
	}
	if right && fingerprint != known && fingerprint != 0 {
		t.Fatalf("%+v of shard %d: fingerprint %x, want %x", q, id, fingerprint, known)
	}
}

func checkOrder(t *testing.T, m *eventlog.Machine, id sharding.ShardID, sh *modelShard, rng *rand.Rand) {
	t.Helper()
	after := rng.Uint64N(sh.index + 1)
	if rng.IntN(2) == 0 {
		after = 0
	}
	var got []string
	upTo, err := m.ReadOrder(context.Background(), id, after, func(row *store.OrderRow) error {
		got = append(got, rowText(row))
		return nil
	})
	if err != nil || upTo != sh.index {
		t.Fatalf("order of shard %d after %d: up to %d, want %d: %v", id, after, upTo, sh.index, err)
	}
	first := 0
	for first < len(sh.rowIndex) && sh.rowIndex[first] <= after {
		first++
	}
	if !slices.Equal(got, sh.rows[first:]) {
		t.Fatalf("order of shard %d after %d:\n got %q\nwant %q", id, after, got, sh.rows[first:])
	}
	checkRange(t, m, id, sh, rng)
}
