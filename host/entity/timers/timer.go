package timers

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"maps"
	"math"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// A timer is a command that the executor puts into its entity's queue when it
// is due. Records set, cancel and fire timers, so the timers of a shard are a
// function of its log. The leader's executor reads the due timers from the
// applied state, a few at a time, and hands each to its entity. The record of
// the timer's command ends the timer. The rest of a shard's timers stay on
// disk; memory only has the time of the next read.

// LimitLook is how often a timer that waits for a limit of its type checks the
// limit again, because it may have been lifted.
const LimitLook = time.Second

// ErrStale means that the timer was set, cancelled or fired after it was read.
var ErrStale = errors.New("the timer has changed")

// Shard is an executor's view of a shard's timers while it leads.
type Shard struct {
	id      sharding.ShardID
	dropped bool            // the executor no longer leads the shard
	at      int64           // log clock time at which due timers are read next; 0 for never
	scan    *Scan           // scan in progress; nil if none
	asOf    uint64          // asOf of the last scan
	window  []journal.Timer // timers read and not admitted, by due time; the shard is in pacer.windows if there are any
	firing  int             // number of timers that are read and not completed
	skipped bool            // the last scan skipped timers of suspended types
	// ops has the latest proposal that touches each timer. Proposals that the
	// applied state includes may be missing.
	ops  map[key]uint64
	most int // size of ops at which decided entries are removed
	// inFlight holds, by entity, the proposals that set timers and may be
	// undecided.
	inFlight map[sharding.EntityID]*inFlight
	back     failures
	turn     uint64 // position among the shards with a window; the shard with the lowest is next
}

// key identifies a timer, or all timers of the entity if name is empty.
type key struct {
	entity sharding.EntityID
	name   string
}

// inFlight counts the timers that an entity's undecided proposals set, and may
// count too many. It keeps two counters instead of a list of proposals: a
// proposal is counted in newer if it is made while a proposal in older is
// undecided, and a counter is reset when its last proposal is decided.
type inFlight struct{ older, newer sets }

// sets counts the timers that proposals up to last set.
type sets struct {
	last uint64
	n    int
}

// settle drops proposals that are decided and reports whether any are left.
func (f *inFlight) settle(decided uint64) bool {
	if f.older.last <= decided {
		f.older, f.newer = f.newer, sets{}
	}
	if f.older.last <= decided {
		f.older = sets{}
	}
	return f.older.n > 0
}

// InFlight returns an upper bound for the number of timers that the entity's
// proposals after decided will set.
func (s *Shard) InFlight(id sharding.EntityID, decided uint64) int {
	f := s.inFlight[id]
	if f == nil {
		return 0
	}
	if !f.settle(decided) {
		delete(s.inFlight, id)
		return 0
	}
	return f.older.n + f.newer.n
}

// addSets counts n timers that a proposal sets for an entity.
func (s *Shard) addSets(id sharding.EntityID, n int, proposal, decided uint64) {
	f := s.inFlight[id]
	if f == nil {
		if s.inFlight == nil {
			s.inFlight = make(map[sharding.EntityID]*inFlight)
		}
		f = &inFlight{}
		s.inFlight[id] = f
	}
	into := &f.newer
	if !f.settle(decided) {
		into = &f.older
	}
	into.last, into.n = proposal, into.n+n
}

// Scan is a request for due timers and its result.
type Scan struct {
	shard sharding.ShardID
	by    int64
	asOf  uint64 // every proposal up to this one is applied
	limit int
	skip  map[key]heldBack
	// skipUntil has the times until which all timers of an entity are skipped, or of
	// a type if the id is empty.
	skipUntil map[sharding.EntityID]int64
	types     suspensions
	// passed has the types whose timers were skipped because of a suspension.
	passed map[string]struct{}
	readAt int64 // earliest time at which timers skipped because of skipUntil may be read; 0 for none

	timers []journal.Timer
	next   int64
	err    error
}

// Reader reads the applied state.
type Reader interface {
	// DueTimers returns at most limit timers of the shard that are due by the
	// given time, the oldest first, except those for which skip returns true.
	// next is the due time of the first timer after them, or math.MaxInt64 if
	// there is none.
	DueTimers(ctx context.Context, shard sharding.ShardID, by int64, limit int,
		skip func(entity sharding.EntityID, name string, due int64) bool) (due []journal.Timer, next int64, err error)
}

// Do performs the scan. It may be called from any goroutine, once, before the
// scan is passed to Timers.OnScan.
func (t *Scan) Do(ctx context.Context, h Reader) {
	t.timers, t.next, t.err = h.DueTimers(ctx, t.shard, t.by, t.limit, func(e sharding.EntityID, name string, due int64) bool {
		if t.types.IsSuspended(e.Type) {
			if t.passed == nil {
				t.passed = make(map[string]struct{})
			}
			t.passed[e.Type] = struct{}{}
			return true
		}
		if due > t.by {
			return false // the scan ends here, however many later timers wait too
		}
		_, waits := t.skip[key{e, name}]
		return waits || t.isHeld(e)
	})
}

// scan starts a read of at most limit due timers of a shard.
func (q *Timers) scan(s *Shard, limit int) {
	by, decided := q.exec.Clock(s.id)
	maps.DeleteFunc(s.ops, func(_ key, n uint64) bool { return n <= decided })
	maps.DeleteFunc(s.inFlight, func(_ sharding.EntityID, f *inFlight) bool { return !f.settle(decided) })
	s.at = 0
	s.scan = &Scan{shard: s.id, by: by, asOf: decided, limit: limit, types: q.opts.Types}
	q.skipHeld(s, s.scan)
	q.pace.scans++
	q.exec.Read(s.scan)
}

// SuspensionsChanged schedules a read of the shards whose last read skipped
// timers of suspended types. Without a change of suspensions these timers stay
// skipped.
func (q *Timers) SuspensionsChanged() {
	for _, s := range q.shards {
		if s.skipped {
			s.skipped = false
			q.Wake(s, q.exec.Now().UnixNano())
		}
	}
}

// OnScan handles the result of a scan.
func (q *Timers) OnScan(scan *Scan) {
	q.pace.scans--
	now := q.exec.Now()
	q.LookAt(now.UnixNano())
	s := q.shards[scan.shard]
	if s == nil || s.scan != scan {
		return // the scan is from an earlier term
	}
	s.scan = nil
	if scan.err != nil {
		q.opts.Logger.Error("cannot read due timers", "shard_id", s.id, "error", scan.err)
		q.Wake(s, now.Add(retry).UnixNano())
		return
	}
	if scan.next != math.MaxInt64 {
		q.Wake(s, scan.next)
	}
	if scan.readAt != 0 {
		q.Wake(s, scan.readAt)
	}
	if len(scan.passed) > 0 {
		s.skipped = true
	}
	for typ := range scan.passed {
		if !q.opts.Types.IsSuspended(typ) { // the type was resumed before this scan was handled
			q.Wake(s, now.UnixNano())
		}
	}
	if s.at != 0 { // an earlier read was requested during the scan
		q.Wake(s, s.at)
	}
	s.asOf = scan.asOf
	q.readAhead(s, scan.timers)
}

// commandOf returns a readable command id for a timer. Deduplication does not
// use it: records of timers identify the timer itself.
func commandOf(t *journal.Timer) journal.CommandID {
	h := fnv.New64a()
	h.Write([]byte(t.Name))
	id := make([]byte, 0, 6+16+1+16)
	id = append(id, "timer-"...)
	id = hex.AppendEncode(id, binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(t.Due)))
	id = append(id, '-')
	id = hex.AppendEncode(id, binary.BigEndian.AppendUint64(make([]byte, 0, 8), h.Sum64()))
	return journal.CommandID(id)
}

// Firing is a due timer in its entity's queue.
type Firing struct {
	Timer   journal.Timer
	timers  *Timers
	shard   *Shard
	asOf    uint64
	cold    bool     // the entity is being loaded
	renewal *renewal // set for a schedule once the command is decided
	request request.Request
	span    Span // nil if tracing is off
}

// Of returns the timer whose command the request is, or nil if the request is
// not from a timer.
func Of(r *request.Request) *Firing {
	f, _ := r.Done.(*Firing)
	return f
}

// admit hands a timer to its entity.
func (q *Timers) admit(f *Firing) {
	f.request = request.Request{
		Kind: request.Command, Entity: f.Timer.Entity, Name: string(f.Timer.Command), Payload: f.Timer.Payload,
		ID: commandOf(&f.Timer), ServerID: true, ExpectedSequence: request.NoExpectation, Done: f, Shard: f.shard.id,
	}
	if f.Timer.Trace != nil {
		f.trace(q.opts.Spans)
	}
	q.exec.Fire(&f.request)
}

// trace begins a span for the firing if spans are recorded. The parent of the
// command's effects is this span or, without it, the span of the command that
// set the timer.
func (f *Firing) trace(spans Spans) {
	set := *f.Timer.Trace
	set.Flags |= journal.TraceAfterTimer
	if f.request.Trace = (&request.Trace{TraceContext: set}); spans != nil {
		f.span = spans.Fire(&f.request)
	}
}

func (f *Firing) key() key { return key{f.Timer.Entity, f.Timer.Name} }

// IsStale reports whether a later proposal touched the timer after it was read,
// so that it may have changed.
func (f *Firing) IsStale() bool {
	ops := f.shard.ops
	return ops[f.key()] > f.asOf || ops[key{entity: f.Timer.Entity}] > f.asOf
}

// MarkLoaded notes that the timer's entity is in memory.
func (f *Firing) MarkLoaded() {
	if f.cold {
		f.cold = false
		f.timers.pace.cold--
	}
}

// Complete implements request.Completer, on the executor's goroutine. A failed
// timer is retried after a delay; other timers do not wait for it.
func (f *Firing) Complete(r *request.Request) {
	q, s := f.timers, f.shard
	if f.span != nil {
		f.span.End(r)
		f.span = nil
	}
	q.pace.admitted--
	f.MarkLoaded()
	if s.dropped {
		return
	}
	now := q.exec.Now().UnixNano()
	switch err := r.Result.Err; {
	case err == nil:
		q.fired++
		if q.opts.Observer != nil {
			q.opts.Observer.TimerFired(time.Duration(now - f.Timer.Due))
		}
		s.back.drop(f.key())
	case errors.Is(err, ErrStale):
		q.Wake(s, now+int64(10*time.Millisecond))
	default:
		q.noteFailure(f, err, now)
	}
	q.due--
	q.noteDone(s, 1)
}

// Sections adds timer sections to a record of an entity: the timer f that
// caused the record, if not nil, and the timers that the guest set and
// cancelled. It also notes that the proposal touches these timers; proposals up
// to decided are applied or lost. It returns the due time of the first timer
// that the record sets, or 0 if it sets none.
func (s *Shard) Sections(rec *journal.Record, f *Firing, id sharding.EntityID, out *abi.Output, proposal, decided uint64) (due int64) {
	if f == nil && len(out.Timers) == 0 && !out.Delete {
		return 0
	}
	sets := func(at int64) {
		if due == 0 || at < due {
			due = max(at, 1)
		}
	}
	if s.ops == nil {
		s.ops = make(map[key]uint64)
	}
	if out.Delete {
		s.ops[key{entity: id}] = proposal
	}
	var ops timerOps
	if f != nil {
		s.ops[f.key()] = proposal
		rec.Sections = append(rec.Sections, journal.Section{Kind: journal.SectionSource,
			Data: journal.AppendTimerSource(nil, journal.TimerSource{Name: []byte(f.Timer.Name), Due: f.Timer.Due})})
		if next := f.renewal; next != nil && !next.ends {
			ops.add(&next.op, &next.schedule)
			sets(next.op.Due)
		}
	}
	set := 0
	for i := range out.Timers {
		t := &out.Timers[i]
		s.ops[key{id, string(t.Name)}] = proposal
		var schedule *journal.Schedule
		if len(t.Expression) > 0 {
			schedule = &journal.Schedule{Expression: t.Expression, Zone: t.Zone, Missed: uint8(t.Missed)}
		}
		ops.add(&journal.TimerOp{Name: t.Name, Cancel: t.Cancel, Due: t.Due, Command: t.Command, Payload: t.Payload}, schedule)
		if !t.Cancel {
			sets(t.Due)
			set++
		}
	}
	if set > 0 {
		s.addSets(id, set, proposal, decided)
	}
	if len(ops.ops) > 0 {
		rec.Sections = append(rec.Sections, journal.Section{Kind: journal.SectionTimers, Data: ops.ops})
	}
	if len(ops.schedules) > 0 {
		rec.Sections = append(rec.Sections, journal.Section{Kind: journal.SectionSchedules, Data: ops.schedules})
	}
	if n := len(s.ops); n > s.most && s.scan == nil && s.firing == 0 {
		maps.DeleteFunc(s.ops, func(_ key, n uint64) bool { return n <= decided })
		maps.DeleteFunc(s.inFlight, func(_ sharding.EntityID, f *inFlight) bool { return !f.settle(decided) })
		s.most = max(1024, 2*len(s.ops))
	}
	return due
}
