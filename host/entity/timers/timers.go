package timers

import (
	"cmp"
	heaps "container/heap"
	"log/slog"
	"slices"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Executor is the executor that Timers belong to. No method blocks.
type Executor interface {
	// Now is the time of the executor's current turn.
	Now() time.Time
	// Clock returns the log clock of a shard that the executor leads, and a
	// number: all proposals up to that number are applied or lost.
	Clock(shard sharding.ShardID) (logNow int64, decided uint64)
	// IsDeferring reports whether the shard delays requests that are not timers.
	IsDeferring(shard sharding.ShardID) bool
	// IsCold reports whether an entity must be loaded before it can accept a command.
	IsCold(shard sharding.ShardID, id sharding.EntityID) bool
	// Fire hands a timer's command to its entity.
	Fire(*request.Request)
	// Read performs a scan on another goroutine and passes it to Timers.OnScan.
	Read(*Scan)
}

// Spans begins a span for each timer that fires and stores it in the request.
type Spans interface {
	// Fire begins the span. The request names the span of the command that set
	// the timer.
	Fire(r *request.Request) Span
}

// Span is the span of a firing timer. End is called once, on the executor's
// goroutine, when the request is completed.
type Span interface{ End(*request.Request) }

// observer observes timers.
type observer interface {
	// TimerFired is called with the lateness of each timer that fires.
	TimerFired(late time.Duration)
}

// suspensions knows the types whose timers must wait.
type suspensions interface {
	// IsSuspended reports whether the timers of a type must wait. It is called
	// from other goroutines too.
	IsSuspended(entityType string) bool
}

// Options of Timers. All are required except Observer and Spans.
type Options struct {
	// Rate is the number of timers per second that may fire under any load.
	Rate int
	// MinScheduleInterval is the minimum interval of a schedule, and the minimum delay
	// between a timer and the timers that its command sets.
	MinScheduleInterval time.Duration
	Observer            observer // may be nil
	Types               suspensions
	Spans               Spans // nil disables tracing
	Logger              *slog.Logger
}

// Timers handles the timers of the shards that an executor leads.
type Timers struct {
	opts   Options
	exec   Executor
	shards map[sharding.ShardID]*Shard
	pace   pacer
	debts  debts
	// limited has the types that are over a limit, with the time until which
	// their timers are held back. At limitedMost types, past times are removed.
	limited     map[string]int64
	limitedMost int
	at          int64 // when the executor must call Ask again, unix nanoseconds; 0 for never
	fired       uint64
	due         int // number of timers that are read as due and not fired
}

// New returns the Timers of an executor that leads no shard yet.
func New(opts Options, exec Executor) *Timers {
	return &Timers{opts: opts, exec: exec, shards: make(map[sharding.ShardID]*Shard)}
}

// Lead begins to serve a shard's timers and schedules their first read
// immediately.
func (q *Timers) Lead(id sharding.ShardID) *Shard {
	s := &Shard{id: id}
	q.shards[id] = s
	q.Wake(s, 1)
	return s
}

// Drop forgets the timers of a shard that the executor no longer leads.
func (q *Timers) Drop(s *Shard) {
	q.due -= s.firing
	q.pace.ahead -= len(s.window)
	if i := slices.Index(q.pace.windows, s); i >= 0 {
		heaps.Remove(&q.pace.windows, i)
	}
	delete(q.shards, s.id)
	*s = Shard{id: s.id, dropped: true}
}

// At is when the executor must call Ask, in unix nanoseconds; 0 for never.
func (q *Timers) At() int64 { return q.at }

// LookAt makes the executor call Ask at the given time or earlier.
func (q *Timers) LookAt(at int64) {
	if q.at == 0 || at < q.at {
		q.at = at
	}
}

// Wake schedules a read of the shard's due timers at the given time or earlier.
func (q *Timers) Wake(s *Shard, at int64) {
	if s.at == 0 || at < s.at {
		s.at = at
	}
	q.LookAt(at)
}

// Counts are statistics of an executor's timers.
type Counts struct {
	// Fired is the number of timers fired since the executor started.
	Fired    uint64
	Due      int // timers that are read as due and not fired
	Ahead    int // due timers that are not admitted
	Admitted int // due timers in their entities' queues
	Cold     int // admitted timers whose entities are being loaded
	Scans    int // scans in progress
}

// Counts returns the current statistics.
func (q *Timers) Counts() Counts {
	p := &q.pace
	return Counts{Fired: q.fired, Due: q.due, Ahead: p.ahead, Admitted: p.admitted, Cold: p.cold, Scans: p.scans}
}

// CountRequests counts requests that are not timers.
func (q *Timers) CountRequests(requests int) { q.pace.asked += requests }

// NoteCommit records the duration of a proposal, in nanoseconds.
func (q *Timers) NoteCommit(nanoseconds int64) { q.pace.noteCommit(nanoseconds) }

// LastCommit is the duration of the last proposal, in nanoseconds.
func (q *Timers) LastCommit() int64 { return q.pace.latest }

// Ask reads the due timers of shards, starting with the shards that have waited
// longest.
func (q *Timers) Ask() {
	p, now := &q.pace, q.exec.Now().UnixNano()
	if q.at == 0 || now < q.at {
		return
	}
	q.at = 0
	if len(p.windows) > 0 {
		q.LookAt(now + int64(Tick))
	}
	if !p.room() {
		q.LookAt(now + int64(Tick))
		return
	}
	due := p.due[:0]
	for _, s := range q.shards {
		switch {
		case s.at == 0 || s.scan != nil || s.firing > 0:
		case s.at > now:
			q.Wake(s, s.at)
		default:
			due = append(due, s)
		}
	}
	slices.SortFunc(due, func(a, b *Shard) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.id, b.id)) })
	limit := windowsTimers / max(1, len(due)+len(p.windows))
	for i, s := range due {
		if !p.room() {
			q.LookAt(now + int64(Tick))
			break
		}
		q.scan(s, min(max(limit, windowLeast), windowTimers))
		due[i] = nil
	}
	clear(due)
	p.due = due[:0]
}

// room reports whether the timers of another shard may be read.
func (p *pacer) room() bool {
	return p.scans < scansAtOnce && p.ahead+(p.scans+1)*windowTimers <= windowsTimers
}

// readAhead puts timers that were read into their shard's window.
func (q *Timers) readAhead(s *Shard, timers []journal.Timer) {
	s.window, s.firing = timers, len(timers)
	q.due += len(timers)
	q.pace.ahead += len(timers)
	if len(timers) > 0 {
		s.turn = max(s.turn, q.pace.turn)
		heaps.Push(&q.pace.windows, s)
	}
}

// Admit hands as many due timers to their entities as the rate allows. owed is
// the number of unanswered requests, including these timers. Shards that delay
// other requests also delay their timers, and no timer is admitted while the
// journal is busy.
func (q *Timers) Admit(owed int, busy func() bool) {
	p := &q.pace
	if len(p.windows) == 0 {
		return
	}
	now := q.exec.Now().UnixNano()
	if busy() {
		q.LookAt(now + int64(Tick))
		return
	}
	p.update(now, float64(q.opts.Rate), owed > p.admitted)
	aside := p.due[:0]
	for n := 0; n < turnRuns && len(p.windows) > 0 && p.canBegin(); n++ {
		s := heaps.Pop(&p.windows).(*Shard)
		switch blocked := q.admitRun(s); {
		case len(s.window) == 0:
		case blocked:
			aside = append(aside, s)
		default:
			heaps.Push(&p.windows, s)
		}
	}
	for _, s := range aside {
		heaps.Push(&p.windows, s)
	}
	clear(aside)
	p.due = aside[:0]
	if len(p.windows) > 0 {
		q.LookAt(now + int64(Tick))
	}
}

// admitRun hands timers of a shard to their entities and reports whether the
// next timer must wait. The caller has removed the shard from the heap.
func (q *Timers) admitRun(s *Shard) (blocked bool) {
	p, now := &q.pace, q.exec.Now().UnixNano()
	p.turn = max(p.turn, s.turn)
	s.turn = p.turn + 1
	for n := 0; n < runTimers && p.canAdmit(); n++ {
		if q.dropHeld(s, now); len(s.window) == 0 {
			return false
		}
		busy := q.exec.IsDeferring(s.id)
		cold := !busy && q.exec.IsCold(s.id, s.window[0].Entity)
		if busy || cold && p.cold >= coldTimers {
			return true
		}
		f := &Firing{timers: q, shard: s, asOf: s.asOf, Timer: s.window[0], cold: cold}
		s.window[0] = journal.Timer{}
		q.trimWindow(s, 1)
		p.admit()
		if cold {
			p.cold++
		}
		q.admit(f)
	}
	return false
}
