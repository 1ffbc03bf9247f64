package window

import "time"

// A command that is tried again is known by its id, as long as the entity
// remembers it. What an entity remembers is bounded, so an id that is not found
// says "not carried out" only if nothing has been forgotten that is as young as
// the command's first attempt. Otherwise nobody can tell any more, and the
// command is refused: twice is worse than an outcome that is not known.
//
// How long ago the first attempt was is measured by the clocks of those who
// made and carried it, none of which is compared with another. What is
// forgotten has a time of the shard's log clock, so the age is taken from that
// clock: directly for what was first tried since this executor leads the shard, for
// the executor's own clock has given all times since then. For what was tried
// before, it is taken from the last time that earlier leaders gave; their
// clocks may have differed from each other by ClocksAgree.
//
//	            forgotten              remembered
//	log clock ------------------|-----------------------|-> now
//	                forgot ^        ^ first attempt: an id that is not found
//	                         was not carried out, ever
const (
	// ClocksAgree is how far apart the clocks of leaders may be, one after the
	// other, for a retry that outlives two changes of the leader or a window that
	// an earlier one built.
	ClocksAgree = 500 * time.Millisecond
	// onTheWay is added to an age, with a quarter of it: the time that the
	// attempt itself was on its way here is not in it.
	onTheWay = 10 * time.Millisecond
)

// Lead is when an executor began to lead a shard.
type Lead struct {
	At    time.Time
	Clock int64 // the log clock then
}

// FirstTried returns a time of the shard's log clock that is not after the
// first attempt of a command. now is the executor's clock, logNow the shard's.
func (l *Lead) FirstTried(now, first time.Time, logNow int64) int64 {
	age := max(0, now.Sub(first))
	age += age/4 + onTheWay
	led := now.Sub(l.At)
	if age > led {
		return l.Clock - int64(age-led+ClocksAgree)
	}
	// A wall clock that was set forward since must not make the age smaller.
	return min(logNow, max(l.At.UnixNano(), l.Clock)+int64(led)) - int64(age)
}

// Built ends the building of a window from the records of which before is the
// time of the first, 0 where it is the entity's first: nothing older than the
// window is younger. Where that is for want of commands, as when an entity's
// timers fire for long after a few of them, more is known. A window that is not
// full has forgotten by age alone, whoever built it: with a command forgotten
// for want of room it was full, and it is not again before it has forgotten one
// that is as young by age. The last that was forgotten so was past the shortest
// of the ages when a later one came, by the clock of this leader or of one
// before. partial says that the window is not all in memory.
func (w *Window) Built(l *Limits, before, logNow int64, partial bool) {
	if before != 0 && !partial && !l.Full(w.Size()) {
		aged := logNow - min(l.ServerMaxAge, l.ClientMaxAge) + int64(ClocksAgree)
		before = min(before, aged)
	}
	w.forgot = max(w.forgot, before)
}

// Reaches reports that a command which was carried out at that time of the log
// clock or later, and is not in the window, never was.
func (w *Window) Reaches(at int64) bool { return w.forgot == 0 || w.forgot < at }
