package entity

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/fnv"
	"maps"
	"math"
	"strings"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// A timer is a command in its entity's own queue. Setting, cancelling and
// firing are parts of records, so what is set is a function of the log. The
// leader's lane asks what has been applied for the timers that are due, a few
// at a time, and gives each to its entity; the record of the command ends the
// timer. Nothing else of a shard's timers is in memory than when to ask next.

const (
	// timersHeldBack bounds the timers of a shard that failed and wait.
	timersHeldBack = 4096
	// timerRetry is how long a timer waits after a failure; it doubles up to
	// timerRetryMost.
	timerRetry     = time.Second
	timerRetryMost = 5 * time.Minute
)

// errStaleTimer: the timer was set, cancelled or fired after it was read.
var errStaleTimer = errors.New("the timer has changed")

// clockwork is a lane's view of a shard's timers while it leads.
type clockwork struct {
	at     int64           // of the log clock, when to ask for due timers; 0 for never
	scan   *timerScan      // under way
	asOf   uint64          // of the last scan
	window []journal.Timer // read and not admitted, by due time; in pacer.windows if any
	firing int             // read and not completed
	// ops are the newest proposals that touch timers, those that a reader of
	// what is applied may not see yet among them.
	ops  map[timerKey]uint64
	most int // of ops, before old ones are looked for
	back map[timerKey]heldBack
}

// timerKey is a timer; without a name, all of its entity's.
type timerKey struct {
	entity sharding.EntityID
	name   string
}

type heldBack struct {
	until int64
	times int
}

// timerScan asks for due timers, and is the answer.
type timerScan struct {
	shard sharding.ShardID
	by    int64
	asOf  uint64 // every proposal up to this one is applied
	limit int
	skip  map[timerKey]heldBack

	timers []journal.Timer
	next   int64
	err    error
}

// read runs on a loader's goroutine.
func (t *timerScan) read(ctx context.Context, h Histories) {
	t.timers, t.next, t.err = h.DueTimers(ctx, t.shard, t.by, t.limit, func(e sharding.EntityID, name string, _ int64) bool {
		_, held := t.skip[timerKey{e, name}]
		return held
	})
}

// scanTimers has at most limit due timers of a shard read.
func (c *core) scanTimers(s *shard, limit int) {
	t := &s.timers
	maps.DeleteFunc(t.ops, func(_ timerKey, n uint64) bool { return n <= s.decided })
	t.at = 0
	t.scan = &timerScan{shard: s.id, by: c.logNow(s), asOf: s.decided, limit: limit}
	for key, b := range t.back {
		if b.until > t.scan.by {
			if t.scan.skip == nil {
				t.scan.skip = make(map[timerKey]heldBack)
			}
			t.scan.skip[key] = b
			c.wake(s, b.until)
		}
	}
	c.pace.scans++
	c.loader.scan(t.scan)
}

// timersFound takes the timers that were read.
func (c *core) timersFound(scan *timerScan) {
	c.pace.scans--
	c.waitsFor(c.now.UnixNano())
	s := c.shards[scan.shard]
	if s == nil || s.timers.scan != scan {
		return // of a term that is over
	}
	s.timers.scan = nil
	if scan.err != nil {
		c.opts.Logger.Error("due timers cannot be read", "shard_id", s.id, "error", scan.err)
		c.wake(s, c.now.Add(timerRetry).UnixNano())
		return
	}
	if scan.next != math.MaxInt64 {
		c.wake(s, scan.next)
	}
	if s.timers.at != 0 { // asked for meanwhile
		c.wake(s, s.timers.at)
	}
	s.timers.asOf = scan.asOf
	c.readAhead(s, scan.timers)
}

// admitTimer brings a timer to its entity.
func (c *core) admitTimer(f *firing) {
	f.request = Request{
		Kind: Command, Entity: f.timer.Entity, Name: string(f.timer.Command), Payload: f.timer.Payload,
		ID: timerCommand(&f.timer), ServerID: true, ExpectedSequence: NoExpectation, Done: f, Shard: f.shard.id,
	}
	f.request.fire = f
	f.shard.undecided++
	c.owed++
	c.dispatch(f.shard, &f.request)
}

// timerCommand names the command of a timer. The name is for people: records
// of timers are told apart by the timer.
func timerCommand(t *journal.Timer) journal.CommandID {
	h := fnv.New64a()
	h.Write([]byte(t.Name))
	id := make([]byte, 0, 6+16+1+16)
	id = append(id, "timer-"...)
	id = hex.AppendEncode(id, binary.BigEndian.AppendUint64(make([]byte, 0, 8), uint64(t.Due)))
	id = append(id, '-')
	id = hex.AppendEncode(id, binary.BigEndian.AppendUint64(make([]byte, 0, 8), h.Sum64()))
	return journal.CommandID(id)
}

// firing is a timer on its way through its entity's queue.
type firing struct {
	core    *core
	shard   *shard
	term    sharding.Term
	asOf    uint64
	timer   journal.Timer
	cold    bool     // its entity is being loaded
	renewal *renewal // of a schedule, once it is decided
	request Request
}

func (f *firing) key() timerKey { return timerKey{f.timer.Entity, f.timer.Name} }

// stale reports that the timer may not be what was read: something that was
// decided after that touches it.
func (f *firing) stale() bool {
	ops := f.shard.timers.ops
	return ops[f.key()] > f.asOf || ops[timerKey{entity: f.timer.Entity}] > f.asOf
}

// Complete implements Completer, on the lane's goroutine. A timer that failed
// is tried again after a while; the others do not wait for it.
func (f *firing) Complete(r *Request) {
	c, s := f.core, f.shard
	t := &s.timers
	c.pace.admitted--
	c.warm(f)
	if s.state != leading || s.term != f.term {
		return
	}
	now := c.now.UnixNano()
	switch err := r.Result.Err; {
	case err == nil:
		c.stats.Timers++
		if c.opts.TimerFired != nil {
			c.opts.TimerFired(time.Duration(now - f.timer.Due))
		}
		delete(t.back, f.key())
	case errors.Is(err, errStaleTimer):
		c.wake(s, now+int64(10*time.Millisecond))
	default:
		b, held := t.back[f.key()]
		wait := timerRetry
		var fault *GuestFaultError
		if errors.As(err, &fault) { // nothing else is the timer's own doing
			wait = min(timerRetry<<min(b.times, 10), timerRetryMost)
			b.times++
		}
		if b.until = now + int64(wait); held || len(t.back) < timersHeldBack {
			if t.back == nil {
				t.back = make(map[timerKey]heldBack)
			}
			t.back[f.key()] = b
		}
		c.wake(s, now+int64(wait))
	}
	c.stats.TimersDue--
	if t.firing--; t.firing == 0 && t.at != 0 {
		c.wake(s, t.at)
	}
}

// timerSections gives a record the timer that made it and those that its guest
// set and cancelled, and notes which proposal touches them.
func (c *core) timerSections(e *entity, r *Request, rec *journal.Record) {
	s := e.shard
	if r.fire == nil && len(c.output.Timers) == 0 && !c.output.Delete {
		return
	}
	if s.timers.ops == nil {
		s.timers.ops = make(map[timerKey]uint64)
	}
	if c.output.Delete {
		s.timers.ops[timerKey{entity: e.id}] = s.next
	}
	var ops timerOps
	if f := r.fire; f != nil {
		s.timers.ops[f.key()] = s.next
		rec.Sections = append(rec.Sections, journal.Section{Kind: journal.SectionSource,
			Data: journal.AppendTimerSource(nil, journal.TimerSource{Name: []byte(f.timer.Name), Due: f.timer.Due})})
		if again := f.renewal; again != nil && !again.ends {
			ops.add(&again.op, &again.schedule)
			s.open.sets(again.op.Due)
		}
	}
	for i := range c.output.Timers {
		t := &c.output.Timers[i]
		s.timers.ops[timerKey{e.id, string(t.Name)}] = s.next
		var schedule *journal.Schedule
		if len(t.Expression) > 0 {
			schedule = &journal.Schedule{Expression: t.Expression, Zone: t.Zone, Missed: uint8(t.Missed)}
		}
		ops.add(&journal.TimerOp{Name: t.Name, Cancel: t.Cancel, Due: t.Due, Command: t.Command, Payload: t.Payload}, schedule)
		if !t.Cancel {
			s.open.sets(t.Due)
		}
	}
	if len(ops.ops) > 0 {
		rec.Sections = append(rec.Sections, journal.Section{Kind: journal.SectionTimers, Data: ops.ops})
	}
	if len(ops.schedules) > 0 {
		rec.Sections = append(rec.Sections, journal.Section{Kind: journal.SectionSchedules, Data: ops.schedules})
	}
	if n := len(s.timers.ops); n > s.timers.most && s.timers.scan == nil && s.timers.firing == 0 {
		maps.DeleteFunc(s.timers.ops, func(_ timerKey, n uint64) bool { return n <= s.decided })
		s.timers.most = max(1024, 2*len(s.timers.ops))
	}
}

// sets notes when a timer of the batch is due.
func (b *batch) sets(due int64) {
	if b.due == 0 || due < b.due {
		b.due = max(due, 1)
	}
}

// endTimer ends a timer whose command cannot be carried out: the entity does
// not know it, or refuses it. Nothing else of the command takes effect. A
// schedule goes on with its next tick.
func (c *core) endTimer(e *entity, r *Request, env Env, evolved bool) {
	c.output.Reset()
	c.append(e, r, env, 0)
	if evolved {
		c.evict(e)
		c.revive(e)
	}
}

// source says who sent a request.
func (r *Request) source() abi.Source {
	if r.fire != nil {
		return abi.Source{Kind: abi.SourceTimer}
	}
	if r.internal() {
		from := r.Delivery.Source
		return abi.Source{Kind: abi.SourceEntity, EntityType: []byte(from.Type), EntityID: []byte(from.ID)}
	}
	return abi.Source{Kind: abi.SourceClient}
}

// skipTimer cancels a timer in a person's name.
func (c *core) skipTimer(e *entity, r *Request) {
	now, hash, done := c.acted(e, r, SkipTimerAct+r.Name)
	switch {
	case done:
	case r.Name == "" || len(r.Name) > abi.MaxNameBytes || strings.IndexByte(r.Name, 0) >= 0:
		c.settle(e.shard, r, Result{Err: ErrUnknownCommand})
	case c.readOnly():
		c.settle(e.shard, r, Result{Err: ErrReadOnly})
	default:
		c.opts.Logger.Info("a timer is skipped", "entity_type", e.id.Type, "shard_id", e.shard.id, "command_id", string(r.ID))
		c.output.Reset()
		c.fuel = 0
		c.output.Timers = append(c.output.Timers, abi.Timer{Name: []byte(r.Name), Cancel: true})
		c.append(e, r, Env{Now: now}, hash)
	}
}
