package entity

import "time"

// A command that is tried again is known by its id, as long as the entity
// remembers it. What an entity remembers is bounded, so an id that is not found
// says "not carried out" only if nothing has been forgotten that is as young as
// the command's first attempt. Otherwise nobody can tell any more, and the
// command is refused: twice is worse than an outcome that is not known.
//
// How long ago the first attempt was is measured by the clocks of those who
// made and carried it, none of which is compared with another. What is forgotten
// has a time of the shard's log clock, so the age is taken from that clock:
// directly for what was first tried since this lane leads the shard, for the
// lane's own clock has given all times since then. For what was tried before,
// it is taken from the last time that earlier leaders gave; their clocks may
// have differed from each other by clocksAgree.
//
//	            forgotten              remembered
//	log clock ------------------|-----------------------|-> now
//	                forgot ^        ^ first attempt: an id that is not found
//	                         was not carried out, ever
const (
	// clocksAgree is how far apart the clocks of leaders may be, one after the
	// other, for a retry that outlives two changes of the leader or a window that
	// an earlier one built.
	clocksAgree = 500 * time.Millisecond
	// onTheWay is added to an age, with a quarter of it: the time that the
	// attempt itself was on its way here is not in it.
	onTheWay = 10 * time.Millisecond
)

// leads is when a lane began to lead a shard.
type leads struct {
	at    time.Time
	clock int64 // the log clock then
}

// firstTried returns a time of the shard's log clock that is not after the
// first attempt of a command.
func (c *core) firstTried(s *shard, r *Request, now int64) int64 {
	age := max(0, c.now.Sub(r.First))
	age += age/4 + onTheWay
	led := c.now.Sub(s.led.at)
	if age > led {
		return s.led.clock - int64(age-led+clocksAgree)
	}
	// A wall clock that was set forward since must not make the age smaller.
	return min(now, max(s.led.at.UnixNano(), s.led.clock)+int64(led)) - int64(age)
}

// recalled ends the building of a window from the records of which before is the
// time of the first, 0 where it is the entity's first: nothing older than the
// window is younger. Where that is for want of commands, as when an entity's
// timers fire for long after a few of them, more is known. A window that is not
// full has forgotten by age alone, whoever built it: with a command forgotten for
// want of room it was full, and it is not again before it has forgotten one that
// is as young by age. The last that was forgotten so was past the shortest of
// the ages when a later one came, by the clock of this leader or of one before.
func (c *core) recalled(e *entity, before int64) {
	w := &c.opts.Window
	if x := e.rest; before != 0 && (x == nil || !x.partial) && !w.full(e.seen.size()) {
		aged := c.logNow(e.shard) - min(w.ServerMaxAge, w.ClientMaxAge) + int64(clocksAgree)
		before = min(before, aged)
	}
	e.seen.forgot = max(e.seen.forgot, before)
}

// forgotten refuses a command that may have taken effect in an earlier attempt
// of which the entity does not know any more. Where the window is not all in
// memory it is read first, and the command is then the first to be served.
func (c *core) forgotten(e *entity, r *Request, now int64) bool {
	if !r.Again || r.First.IsZero() || e.seen.forgot == 0 || e.seen.forgot < c.firstTried(e.shard, r, now) {
		return false
	}
	if e.rest != nil && e.rest.partial {
		c.readWhole(e, r)
		return true
	}
	c.stats.Forgotten++
	c.settle(e.shard, r, Result{Err: ErrForgotten})
	return true
}
