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

// A timer is a command in its entity's own queue. Setting, cancelling and
// firing are parts of records, so what is set is a function of the log. The
// leader's executor asks what has been applied for the timers that are due, a few
// at a time, and gives each to its entity; the record of the command ends the
// timer. Nothing else of a shard's timers is in memory than when to ask next.

const (
	// heldBackMost bounds the timers of a shard that failed and wait.
	heldBackMost = 4096
	// retry is how long a timer waits after a failure; it doubles up to
	// retryMost.
	retry     = time.Second
	retryMost = 5 * time.Minute
)

// LimitLook is after how long what waits for a limit of its type looks whether
// that still holds: it may have been lifted.
const LimitLook = time.Second

// ErrStale: the timer was set, cancelled or fired after it was read.
var ErrStale = errors.New("the timer has changed")

// Shard is an executor's view of a shard's timers while it leads.
type Shard struct {
	id      sharding.ShardID
	over    bool            // the executor does not lead any more
	at      int64           // of the log clock, when to ask for due timers; 0 for never
	scan    *Scan           // under way
	asOf    uint64          // of the last scan
	window  []journal.Timer // read and not admitted, by due time; in Timers.windows if any
	firing  int             // read and not completed
	skipped bool            // timers of suspended types were skipped
	// ops are the newest proposals that touch timers, those that a reader of
	// what is applied may not see yet among them.
	ops  map[key]uint64
	most int // of ops, before old ones are looked for
	// inFlight are the entities of which proposals that set timers may not be
	// decided.
	inFlight map[sharding.EntityID]*inFlight
	back     map[key]heldBack
}

// key is a timer; without a name, all of its entity's.
type key struct {
	entity sharding.EntityID
	name   string
}

// inFlight counts timers that proposals of an entity set, in two parts: those
// that were made while the older ones were not decided are the newer.
type inFlight struct{ older, newer sets }

// sets are how many timers are set by proposals up to last.
type sets struct {
	last uint64
	n    int
}

// settle forgets what is decided, and reports whether anything is left.
func (f *inFlight) settle(decided uint64) bool {
	if f.older.last <= decided {
		f.older, f.newer = f.newer, sets{}
	}
	if f.older.last <= decided {
		f.older = sets{}
	}
	return f.older.n > 0
}

// InFlight bounds how many timers an entity may get by its proposals after
// decided.
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

// setting notes that a proposal sets timers of an entity.
func (s *Shard) setting(id sharding.EntityID, n int, proposal, decided uint64) {
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

// heldBack is how long a timer that failed waits, and how often it has failed.
type heldBack struct {
	until int64
	times int
}

// Scan asks for due timers, and is the answer.
type Scan struct {
	shard sharding.ShardID
	by    int64
	asOf  uint64 // every proposal up to this one is applied
	limit int
	skip  map[key]heldBack
	// suspended says which types' timers are passed over; some were.
	suspended func(entityType string) bool
	passed    map[string]struct{}

	timers []journal.Timer
	next   int64
	err    error
}

// A Reader reads what has been applied.
type Reader interface {
	// DueTimers returns the shard's timers that are due by then, the oldest
	// first, at most limit of those that skip does not refuse, and when the
	// next one after them is due, math.MaxInt64 for none.
	DueTimers(ctx context.Context, shard sharding.ShardID, by int64, limit int,
		skip func(entity sharding.EntityID, name string, due int64) bool) (due []journal.Timer, next int64, err error)
}

// Do carries the scan out. It may be called from any goroutine, once, before
// the scan comes back to Timers.Found.
func (t *Scan) Do(ctx context.Context, h Reader) {
	t.timers, t.next, t.err = h.DueTimers(ctx, t.shard, t.by, t.limit, func(e sharding.EntityID, name string, _ int64) bool {
		if t.suspended(e.Type) {
			if t.passed == nil {
				t.passed = make(map[string]struct{})
			}
			t.passed[e.Type] = struct{}{}
			return true
		}
		_, waits := t.skip[key{e, name}]
		return waits
	})
}

// scan has at most limit due timers of a shard read.
func (q *Timers) scan(s *Shard, limit int) {
	by, decided := q.lane.Clock(s.id)
	maps.DeleteFunc(s.ops, func(_ key, n uint64) bool { return n <= decided })
	maps.DeleteFunc(s.inFlight, func(_ sharding.EntityID, f *inFlight) bool { return !f.settle(decided) })
	s.at = 0
	s.scan = &Scan{shard: s.id, by: by, asOf: decided, limit: limit, suspended: q.opts.Suspended}
	for k, b := range s.back {
		if b.until > s.scan.by {
			if s.scan.skip == nil {
				s.scan.skip = make(map[key]heldBack)
			}
			s.scan.skip[k] = b
			q.Wake(s, b.until)
		}
	}
	q.pace.scans++
	q.lane.Read(s.scan)
}

// SuspensionsMoved has the timers read of shards in which some were skipped
// because their types were suspended: until then nothing has changed for them.
func (q *Timers) SuspensionsMoved() {
	for _, s := range q.shards {
		if s.skipped {
			s.skipped = false
			q.Wake(s, q.lane.Now().UnixNano())
		}
	}
}

// Found takes the timers that were read.
func (q *Timers) Found(scan *Scan) {
	q.pace.scans--
	now := q.lane.Now()
	q.LookAt(now.UnixNano())
	s := q.shards[scan.shard]
	if s == nil || s.scan != scan {
		return // of a term that is over
	}
	s.scan = nil
	if scan.err != nil {
		q.opts.Logger.Error("due timers cannot be read", "shard_id", s.id, "error", scan.err)
		q.Wake(s, now.Add(retry).UnixNano())
		return
	}
	if scan.next != math.MaxInt64 {
		q.Wake(s, scan.next)
	}
	if len(scan.passed) > 0 {
		s.skipped = true
	}
	for typ := range scan.passed {
		if !q.opts.Suspended(typ) { // it was resumed before this shard skipped it
			q.Wake(s, now.UnixNano())
		}
	}
	if s.at != 0 { // asked for meanwhile
		q.Wake(s, s.at)
	}
	s.asOf = scan.asOf
	q.readAhead(s, scan.timers)
}

// commandOf names the command of a timer. The name is for people: records
// of timers are told apart by the timer.
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

// Firing is a timer on its way through its entity's queue.
type Firing struct {
	Timer   journal.Timer
	timers  *Timers
	shard   *Shard
	asOf    uint64
	cold    bool     // its entity is being loaded
	renewal *renewal // of a schedule, once it is decided
	request request.Request
	span    Span // nil where none is made
}

// Of is the timer whose command a request is; nil for any other.
func Of(r *request.Request) *Firing {
	f, _ := r.Done.(*Firing)
	return f
}

// admit brings a timer to its entity.
func (q *Timers) admit(f *Firing) {
	f.request = request.Request{
		Kind: request.Command, Entity: f.Timer.Entity, Name: string(f.Timer.Command), Payload: f.Timer.Payload,
		ID: commandOf(&f.Timer), ServerID: true, ExpectedSequence: request.NoExpectation, Done: f, Shard: f.shard.id,
	}
	if f.Timer.Trace != nil {
		f.trace(q.opts.Spans)
	}
	q.lane.Fire(&f.request)
}

// trace begins a span, where there is who makes it. What the timer leads to
// follows that, or else the command that set the timer.
func (f *Firing) trace(spans Spans) {
	set := *f.Timer.Trace
	set.Flags |= journal.TraceAfterTimer
	if f.request.Trace = (&request.Trace{TraceContext: set}); spans != nil {
		f.span = spans.Fire(&f.request)
	}
}

func (f *Firing) key() key { return key{f.Timer.Entity, f.Timer.Name} }

// Stale reports that the timer may not be what was read: something that was
// decided after that touches it.
func (f *Firing) Stale() bool {
	ops := f.shard.ops
	return ops[f.key()] > f.asOf || ops[key{entity: f.Timer.Entity}] > f.asOf
}

// Loaded notes that the entity of the timer is in memory.
func (f *Firing) Loaded() {
	if f.cold {
		f.cold = false
		f.timers.pace.cold--
	}
}

// Complete implements request.Completer, on the executor's goroutine. A timer that
// failed is tried again after a while; the others do not wait for it.
func (f *Firing) Complete(r *request.Request) {
	q, s := f.timers, f.shard
	if f.span != nil {
		f.span.End(r)
		f.span = nil
	}
	q.pace.admitted--
	f.Loaded()
	if s.over {
		return
	}
	now := q.lane.Now().UnixNano()
	switch err := r.Result.Err; {
	case err == nil:
		q.fired++
		if q.opts.Fired != nil {
			q.opts.Fired(time.Duration(now - f.Timer.Due))
		}
		delete(s.back, f.key())
	case errors.Is(err, ErrStale):
		q.Wake(s, now+int64(10*time.Millisecond))
	default:
		b, waits := s.back[f.key()]
		wait := retry
		var limited *request.RateLimitedError
		if errors.As(err, &limited) {
			wait = min(max(limited.RetryAfter, 100*time.Millisecond), LimitLook)
		}
		var fault *request.GuestFaultError
		if errors.As(err, &fault) || errors.Is(err, request.ErrUnknownCommand) || errors.Is(err, request.ErrOutputValue) { // nothing else is the timer's own doing
			wait = min(retry<<min(b.times, 10), retryMost)
			b.times++
		}
		if b.until = now + int64(wait); waits || len(s.back) < heldBackMost {
			if s.back == nil {
				s.back = make(map[key]heldBack)
			}
			s.back[f.key()] = b
		}
		q.Wake(s, now+int64(wait))
	}
	q.due--
	if s.firing--; s.firing == 0 && s.at != 0 {
		q.Wake(s, s.at)
	}
}

// Sections gives a record of an entity the timer that made it, nil for none,
// and those that its guest set and cancelled, and notes that the proposal
// touches them; those up to decided are applied or lost. It returns when the
// first of those that are set is due, 0 for none.
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
		s.setting(id, set, proposal, decided)
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
