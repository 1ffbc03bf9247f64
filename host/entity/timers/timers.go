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

// Lane is what the timers need of the executor that has them. No method blocks.
type Lane interface {
	// Now is the time of this turn.
	Now() time.Time
	// Clock is the log clock of a shard that is led, and up to which proposal
	// every one is applied or lost.
	Clock(shard sharding.ShardID) (logNow int64, decided uint64)
	// Deferring reports that the shard holds back requests of others.
	Deferring(shard sharding.ShardID) bool
	// Cold reports that an entity has to be loaded before it takes a command.
	Cold(shard sharding.ShardID, id sharding.EntityID) bool
	// Fire brings a timer's command to its entity.
	Fire(*request.Request)
	// Read has a scan done on another goroutine; it comes back to Found.
	Read(*Scan)
}

// Spans makes a span of a timer that fires, and has the request name it.
type Spans interface {
	// Fire begins the span. The request names the span of the command that set
	// the timer.
	Fire(r *request.Request) Span
}

// Span is the span of a timer that fires. End is called once, on the executor's
// goroutine, when the request is completed.
type Span interface{ End(*request.Request) }

// Options of Timers. All are needed but Fired and Spans.
type Options struct {
	// Rate is how many may fire in a second however much else there is to do.
	Rate int
	// LeastTick is between two ticks of a schedule, and from a timer to those
	// that its command sets to be due at once.
	LeastTick time.Duration
	// Fired is told how late each timer fires. Nil: nobody is.
	Fired func(late time.Duration)
	// Suspended reports that the timers of a type wait. It is called from other
	// goroutines too.
	Suspended func(entityType string) bool
	Spans     Spans // nil: timers have none
	Logger    *slog.Logger
}

// Timers are those of the shards that an executor leads.
type Timers struct {
	opts   Options
	lane   Lane
	shards map[sharding.ShardID]*Shard
	pace   pacer
	debts  debts
	at     int64 // when the executor looks again, unix nanoseconds; 0 for never
	fired  uint64
	due    int // read as due and not fired
}

// New returns the timers of an executor that leads nothing.
func New(opts Options, lane Lane) *Timers {
	return &Timers{opts: opts, lane: lane, shards: make(map[sharding.ShardID]*Shard)}
}

// Lead returns a shard's timers, which are asked for at once.
func (q *Timers) Lead(id sharding.ShardID) *Shard {
	s := &Shard{id: id}
	q.shards[id] = s
	q.Wake(s, 1)
	return s
}

// Drop forgets the timers of a shard that is led no more.
func (q *Timers) Drop(s *Shard) {
	q.due -= s.firing
	q.pace.ahead -= len(s.window)
	if i := slices.Index(q.pace.windows, s); i >= 0 {
		heaps.Remove(&q.pace.windows, i)
	}
	delete(q.shards, s.id)
	*s = Shard{id: s.id, over: true}
}

// At is when the executor is to call Ask, unix nanoseconds; 0 for never.
func (q *Timers) At() int64 { return q.at }

// LookAt has the executor look after its timers at a time.
func (q *Timers) LookAt(at int64) {
	if q.at == 0 || at < q.at {
		q.at = at
	}
}

// Wake has the shard's due timers asked for at a time.
func (q *Timers) Wake(s *Shard, at int64) {
	if s.at == 0 || at < s.at {
		s.at = at
	}
	q.LookAt(at)
}

// Counts are what an executor's timers are at.
type Counts struct {
	Fired    uint64
	Due      int // read as due and not fired
	Ahead    int // of these, not admitted
	Admitted int // on their way through their entities' queues
	Cold     int // of these, with entities that are being loaded
	Scans    int // under way
}

// Counts returns the counts of this moment.
func (q *Timers) Counts() Counts {
	p := &q.pace
	return Counts{Fired: q.fired, Due: q.due, Ahead: p.ahead, Admitted: p.admitted, Cold: p.cold, Scans: p.scans}
}

// Asked counts requests of others.
func (q *Timers) Asked(requests int) { q.pace.asked += requests }

// Committed notes how long a proposal took, in nanoseconds.
func (q *Timers) Committed(nanoseconds int64) { q.pace.committed(nanoseconds) }

// LastCommit is how long the last proposal took, in nanoseconds.
func (q *Timers) LastCommit() int64 { return q.pace.latest }

// Ask has the due timers of shards read, of those first that have waited
// longest.
func (q *Timers) Ask() {
	p, now := &q.pace, q.lane.Now().UnixNano()
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

// room reports whether the timers of one more shard may be read.
func (p *pacer) room() bool {
	return p.scans < scansAtOnce && p.ahead+(p.scans+1)*windowTimers <= windowsTimers
}

// readAhead puts the timers of a shard that were read into its window.
func (q *Timers) readAhead(s *Shard, timers []journal.Timer) {
	s.window, s.firing = timers, len(timers)
	q.due += len(timers)
	q.pace.ahead += len(timers)
	if len(timers) > 0 {
		heaps.Push(&q.pace.windows, s)
	}
}

// Admit hands timers that are due to their entities, as many as may be now;
// owed is how many requests have not been answered, these among them. Shards
// that hold back requests of others hold back their timers too, and none is
// admitted while the journal is busy.
func (q *Timers) Admit(owed int, busy func() bool) {
	p := &q.pace
	if len(p.windows) == 0 {
		return
	}
	now := q.lane.Now().UnixNano()
	if busy() {
		q.LookAt(now + int64(Tick))
		return
	}
	p.bring(now, float64(q.opts.Rate), owed > p.admitted)
	aside := p.due[:0]
	for len(p.windows) > 0 && p.begins() {
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

// admitRun hands timers of a shard whose window is in no heap to their
// entities, and reports whether the next one has to wait.
func (q *Timers) admitRun(s *Shard) (blocked bool) {
	p := &q.pace
	for n := 0; n < runTimers && len(s.window) > 0 && p.admits(); n++ {
		busy := q.lane.Deferring(s.id)
		cold := !busy && q.lane.Cold(s.id, s.window[0].Entity)
		if busy || cold && p.cold >= coldTimers {
			return true
		}
		f := &Firing{timers: q, shard: s, asOf: s.asOf, Timer: s.window[0], cold: cold}
		s.window[0] = journal.Timer{}
		if s.window = s.window[1:]; len(s.window) == 0 {
			s.window = nil
		}
		p.admit()
		if cold {
			p.cold++
		}
		q.admit(f)
	}
	return false
}
