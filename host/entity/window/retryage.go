package window

import "time"

// A retry is recognized by its command id as long as the entity remembers the
// id. This memory is bounded, so an id that is not found means "not executed"
// only if no command that is as young as the retry's first attempt has been
// forgotten. Otherwise the entity cannot know whether the command was executed
// and rejects it, because executing it twice is worse than an unknown outcome.
//
// The age of the first attempt is a duration, measured by the clocks of the
// client and of the nodes on the way; no two clocks are compared. Forgotten
// commands have a time of the shard's log clock, so the age is subtracted from
// that clock. If the first attempt is younger than this executor's leadership,
// this is exact, because the executor's own clock has given all log times since
// then. If it is older, the age is subtracted from the last time that an
// earlier leader gave; the clocks of earlier leaders may have differed from
// each other by ClocksAgree.
//
//	            forgotten              remembered
//	log clock ------------------|-----------------------|-> now
//	                forgot ^        ^ first attempt: an id that is not found
//	                         was not executed, ever
const (
	// ClocksAgree is the assumed bound on the difference between the clocks of
	// successive leaders. It matters for a retry that outlives two changes of
	// the leader, and for a window that an earlier leader built.
	ClocksAgree = 500 * time.Millisecond
	// onTheWay is added to an age, together with a quarter of the age, because
	// the age does not include the time that the attempt itself took to arrive.
	onTheWay = 10 * time.Millisecond
)

// Lead is the moment at which an executor began to lead a shard.
type Lead struct {
	At    time.Time
	Clock int64 // log clock at that moment
}

// FirstAttempt returns a time of the shard's log clock that is not after the
// command's first attempt. now and first are times of the executor's clock,
// logNow is the shard's log clock.
func (l *Lead) FirstAttempt(now, first time.Time, logNow int64) int64 {
	age := max(0, now.Sub(first))
	age += age/4 + onTheWay
	led := now.Sub(l.At)
	if age > led {
		return l.Clock - int64(age-led+ClocksAgree)
	}
	// A wall clock that was set forward since then must not make the age
	// smaller.
	return min(logNow, max(l.At.UnixNano(), l.Clock)+int64(led)) - int64(age)
}

// EndRebuild ends the rebuilding of a window from records. before is the time of the
// first of these records, or 0 if that is the entity's first record: no command
// older than the window is younger than before.
//
// If the window is not full, a tighter bound may hold, for example after an
// entity's timers have fired for long after a few commands. A window forgets
// a command for lack of room only while it is full, and it stops being full
// only when it forgets, by age, a command that is at least as recent. So if
// the window is not full now, the most recent of all forgotten commands was
// forgotten by age. This holds for the windows of earlier leaders too. That
// command was older than the shorter of the maximum ages when a later command
// came, by the clock of this leader or of an earlier one.
//
// partial reports whether commands that the window could hold are not in it:
// they are not in memory, or the records were not read. The tighter bound does
// not hold then.
func (w *Window) EndRebuild(l *Limits, before, logNow int64, partial bool) {
	if before != 0 && !partial && !l.Full(w.Size()) {
		aged := logNow - min(l.ServerMaxAge, l.ClientMaxAge) + int64(ClocksAgree)
		before = min(before, aged)
	}
	w.forgot = max(w.forgot, before)
}

// Reaches reports whether a command with this log clock time or a later one was
// never executed if it is not in the window.
func (w *Window) Reaches(at int64) bool { return w.forgot == 0 || w.forgot < at }
