package eventlog_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// source generates entries, most of which fit a model's state; the model must
// reject the other entries.
type source struct {
	rng    *rand.Rand
	model  *model
	shards int
	names  int
	clock  int64
	number uint64
	wrong  bool // generate some entries that must be rejected
	many   bool // generate many timers and deletions
}

func newSource(seed uint64, shards, names int) *source {
	return &source{rng: rand.New(rand.NewPCG(seed, 1)), model: newModel(), shards: shards, names: names, clock: 1e18, wrong: true}
}

func (s *source) entity() sharding.EntityID {
	n := s.rng.IntN(s.names)
	return sharding.EntityID{Type: []string{"account", "cart", "a"}[n%3], ID: fmt.Sprintf("e %d", n)}
}

// next generates the next entry of a random shard, applies it to the model, and
// returns the error that its apply result must wrap.
func (s *source) next() (sharding.ShardID, journal.Committed, error) {
	id := sharding.ShardID(1 + s.rng.IntN(s.shards))
	sh := s.model.shard(id)
	c := journal.Committed{Index: sh.index + 1, Term: max(sh.term, 1)}
	if s.rng.IntN(20) == 0 {
		c.Term++
	} else {
		c.Data = s.data(sh, c.Term)
	}
	return id, c, s.model.apply(id, c)
}

func (s *source) data(sh *modelShard, term sharding.Term) []byte {
	fence := term
	if s.wrong && s.rng.IntN(15) == 0 {
		fence--
	}
	s.number++
	if s.rng.IntN(20) == 0 {
		return s.bindings(sh, fence)
	}
	if s.rng.IntN(8) == 0 {
		return s.outboxEntry(sh, fence)
	}
	if s.rng.IntN(4) == 0 {
		if b := s.snapshot(sh, fence); b != nil {
			return b
		}
	}
	level := s.level()
	if level >= sharding.VersionPacedWork && s.rng.IntN(12) == 0 {
		return journal.AppendPacedHeader(nil, level, journal.EntryWork, fence, s.number)
	}
	b := journal.AppendPacedHeader(nil, level, journal.EntryRecords, fence, s.number)
	type state struct {
		seq  journal.Sequence
		hash journal.Hash
	}
	after := make(map[sharding.EntityID]state)
	var chain journal.Chain
	taken := make(map[modelPair]uint64)
	for n := 1 + s.rng.IntN(5); n > 0; n-- {
		e := s.entity()
		at, ok := after[e]
		if cur := sh.entities[e]; !ok && cur != nil {
			at = state{cur.seq, cur.hash}
		}
		r := s.record(e, term)
		s.timers(&r, sh.entities[e])
		s.addMessages(&r, sh, taken)
		addRun(&r)
		slices.SortFunc(r.Sections, func(a, b journal.Section) int { return cmp.Compare(a.Kind, b.Kind) })
		r.Expected, r.Prev = at.seq, at.hash
		if s.wrong && s.rng.IntN(40) == 0 {
			r.Expected += journal.Sequence(s.rng.IntN(3)) - 1
		}
		if s.wrong && s.rng.IntN(40) == 0 {
			r.Prev[s.rng.IntN(32)] ^= 1
		}
		b = journal.AppendRecord(b, &r)
		after[e] = state{r.Last(), chain.After(&r)}
	}
	return b
}

// level returns one of two cluster versions, so that a log contains entries of
// both versions.
func (s *source) level() sharding.ClusterVersion {
	return sharding.Version2 + sharding.ClusterVersion(min(1, s.rng.IntN(4)))
}

// bindings generates an entry with a revision that may or may not be higher
// than the shard's.
func (s *source) bindings(sh *modelShard, fence sharding.Term) []byte {
	b := journal.AppendBindingsEntry(nil, fence, s.number, max(1, sh.revision+s.rng.Uint64N(5))-1)
	if s.wrong && s.rng.IntN(4) == 0 {
		b = b[:len(b)-s.rng.IntN(8)-1]
	}
	return b
}

// snapshot generates an entry with a snapshot of an entity that has events. The
// snapshot may or may not be at the entity's last event. snapshot returns nil
// if the drawn entity has no events.
func (s *source) snapshot(sh *modelShard, fence sharding.Term) []byte {
	e := s.entity()
	ent := sh.entities[e]
	if ent == nil || ent.seq == 0 {
		return nil
	}
	snap := journal.Snapshot{
		Entity: e, Sequence: ent.seq, Hash: ent.hash, Module: journal.Digest{byte(s.rng.IntN(2))},
		Keep: uint8(1 + s.rng.IntN(journal.MaxSnapshots)), State: s.bytes(500),
	}
	if s.wrong && s.rng.IntN(10) == 0 {
		snap.Sequence += journal.Sequence(s.rng.IntN(2))
	}
	if s.wrong && s.rng.IntN(10) == 0 {
		snap.Hash[s.rng.IntN(32)] ^= 1
	}
	snap.Window = journal.Sequence(s.rng.Uint64N(uint64(snap.Sequence) + 1))
	if s.rng.IntN(2) == 0 {
		snap.Retain = 1 + s.rng.Uint64N(8)
	}
	if s.number%2 == 0 {
		snap.Filter, snap.FilterIDs = []byte{1, 2, 3, 4}, 2
	}
	if snap.Module == journal.NoModule && s.number%3 == 0 && s.level() >= sharding.VersionWorkflows {
		snap.Checkpoint, snap.Chain = true, uint8(s.number)
	}
	return journal.AppendSnapshot(journal.AppendPacedHeader(nil, s.level(), journal.EntrySnapshot, fence, s.number), &snap)
}

func (s *source) record(e sharding.EntityID, term sharding.Term) journal.Record {
	s.clock += int64(s.rng.IntN(2000)) - 500
	r := journal.Record{
		Entity: e, Term: term, RecordedAt: s.clock, CommandID: journal.CommandID(fmt.Sprintf("c-%d", s.rng.Uint64())),
		CommandHash: s.rng.Uint64(), Reply: s.bytes(40), Module: journal.Digest{byte(s.rng.IntN(3))},
	}
	if s.rng.IntN(15) == 0 || s.many && s.rng.IntN(8) == 0 {
		r.Flags |= journal.FlagTombstone
	}
	if s.rng.IntN(5) == 0 {
		r.Flags |= journal.FlagStopped
	}
	for n := s.rng.IntN(4); n > 0; n-- {
		ev := journal.Event{Type: "moved", Payload: s.bytes(300)}
		for t := s.rng.IntN(3); t > 0; t-- {
			ev.Tags = append(ev.Tags, fmt.Sprintf("tag-%d", s.rng.IntN(9)))
		}
		r.Events = append(r.Events, ev)
	}
	return r
}

// addRun adds a run status to some records. It draws no random numbers.
func addRun(r *journal.Record) {
	h := r.CommandHash >> 32
	if h%3 == 0 {
		return
	}
	s := journal.RunStatus{State: journal.RunState(1 + h>>8%3), Steps: uint32(h >> 16)}
	switch s.State {
	case journal.RunFailed:
		s.Code = "broken"
	case journal.RunRunning:
		s.Waits = []string{"sleep", "wait approval"}[:h>>16%3]
	}
	r.Sections = append(r.Sections, journal.Section{Kind: journal.SectionRun, Data: journal.AppendRunStatus(nil, &s)})
}

// timers makes a record set and cancel timers, or makes a timer the cause of
// the record.
func (s *source) timers(r *journal.Record, cur *modelEntity) {
	if s.rng.IntN(3) > 0 {
		return
	}
	due := func() int64 { return int64(s.rng.IntN(40)) - 10 }
	if cur != nil && len(cur.timers) > 0 && s.rng.IntN(2) == 0 {
		names := slices.Sorted(maps.Keys(cur.timers))
		t := cur.timers[names[s.rng.IntN(len(names))]]
		if s.wrong && s.rng.IntN(10) == 0 {
			t.Due++
		}
		r.Sections = append(r.Sections, journal.Section{Kind: journal.SectionSource,
			Data: journal.AppendTimerSource(nil, journal.TimerSource{Name: []byte(t.Name), Due: t.Due})})
	}
	if h := r.CommandHash; h&1 == 0 {
		in := journal.TraceContext{Trace: [16]byte{1, 15: byte(h >> 8)}, Span: [8]byte{1, 7: byte(h >> 16)}, Flags: 1 | byte(h<<6)&journal.TraceAfterTimer}
		r.Sections = append(r.Sections, journal.Section{Kind: journal.SectionTrace, Data: journal.AppendTraceContext(nil, &in)})
	}
	var ops, schedules []byte
	n, names := s.rng.IntN(4), 8
	if s.rng.IntN(6) == 0 { // more timers than a deletion removes at once
		n, names = 10+s.rng.IntN(20), 30
	}
	if s.rng.IntN(60) == 0 { // more timers than one entry removes
		n, names = 400, 400
	}
	if s.many && s.rng.IntN(3) == 0 {
		n, names = 300, 3000
	}
	for i := range n {
		op := journal.TimerOp{Name: fmt.Appendf(nil, "t%d", s.rng.IntN(names)), Cancel: s.rng.IntN(4) == 0}
		if !op.Cancel {
			op.Due, op.Command, op.Payload = due(), []byte("tick"), s.bytes(20)
		}
		if !op.Cancel && s.rng.IntN(2) == 0 {
			schedules = journal.AppendScheduleOp(schedules, &journal.ScheduleOp{Op: uint16(i), Schedule: journal.Schedule{
				Expression: fmt.Appendf(nil, "@every %ds", s.rng.IntN(9)), Zone: s.bytes(9), Missed: uint8(s.rng.IntN(3)), Made: uint16(s.rng.IntN(300))}})
		}
		ops = journal.AppendTimerOp(ops, op)
	}
	if len(ops) > 0 {
		r.Sections = append(r.Sections, journal.Section{Kind: journal.SectionTimers, Data: ops})
	}
	if len(schedules) > 0 {
		r.Sections = append(r.Sections, journal.Section{Kind: journal.SectionSchedules, Data: schedules})
	}
}

func (s *source) bytes(most int) []byte {
	b := make([]byte, s.rng.IntN(most+1))
	for i := range b {
		b[i] = byte(s.rng.Uint32())
	}
	return b
}
