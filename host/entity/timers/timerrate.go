package timers

import (
	"cmp"
	"time"
)

// Many timers may be due at once, and what else is asked of the entities comes
// first. So an executor reads the timers of some shards ahead, the ones that are due
// first before the others, and hands them to their entities at a rate: the
// options' at least, however busy it is, and more as long as that delays
// nobody.
//
//	due --> read, in its shard's window --> admitted, to its entity's queue --> fired
//	        bounded for the executor            bounded for the executor

const (
	// windowTimers bounds the timers of a shard that are read at a time, and
	// windowLeast is how few that are when many shards have some due.
	windowTimers = 256
	windowLeast  = 32
	// windowsTimers bounds those of an executor that are read and not admitted.
	windowsTimers = 16384
	// runTimers of a shard are admitted in a row, whatever is due in others: they
	// become one entry of its log.
	runTimers = 32
	// scansAtOnce bounds the reads under way: half of the loaders are left to
	// callers.
	scansAtOnce = 4
	// admittedTimers bounds those that are admitted and not fired, and
	// coldTimers those of them whose entities are being loaded: an entity of a
	// caller waits for a few of these loads at most.
	admittedTimers = 1024
	coldTimers     = 32

	// paceMost bounds the rate when nobody else asks for anything, as a multiple
	// of the least.
	paceMost = 8
	// paceBurst is for how long what the rate allows adds up, paceLook how often
	// the rate is looked at, Tick when the executor looks again for what the rate
	// did not allow yet.
	paceBurst = 20 * time.Millisecond
	paceLook  = 10 * time.Millisecond
	Tick      = 2 * time.Millisecond
	// After so long without a timer the rate is the least again, and after so
	// long without anybody else it grows. Who waits for an answer may not ask for
	// anything meanwhile.
	paceAnew = 100 * time.Millisecond
	Alone    = time.Second
	// With a commit above Slow others wait, and timers let them go first, for
	// paceDebt at most: what the rate allows meanwhile is made up for at paceSpurt
	// times the rate. With one above paceStrained the machine cannot do what it is
	// asked for: then the least is only a part of what it is, one of paceYield.
	Slow         = 8 * time.Millisecond
	paceDebt     = 300 * time.Millisecond
	paceSpurt    = 2
	paceStrained = 100 * time.Millisecond
	paceYield    = 8
)

// pacer decides how many timers an executor may admit. Its clock is the executor's.
type pacer struct {
	rate    float64 // timers a second
	allowed float64 // may be admitted by the rate
	spurt   float64 // may be admitted now, of these
	counted int64   // when both were brought up to date
	looked  int64   // when rate was
	asked   int     // requests of others since bring
	others  int64   // when others last asked or waited
	slowest int64   // commit since looked, in nanoseconds
	latest  int64   // commit

	due      []*Shard // between uses empty
	windows  windows
	ahead    int // timers in windows
	scans    int // under way
	admitted int // and not fired
	cold     int // of these, with entities that are being loaded
}

// bring brings what is allowed, and the rate, up to date. The rate is the least
// while others ask, or wait for answers, and grows fast when they do not.
// Nothing less than a machine that is overloaded brings it below the least.
func (p *pacer) bring(now int64, least float64, waiting bool) {
	if p.asked > 0 || waiting {
		p.asked, p.others = 0, now
	}
	if now-p.counted > int64(paceAnew) {
		p.rate, p.looked, p.slowest = least, now, 0
		p.allowed, p.spurt, p.counted = 0, 0, now-int64(paceBurst)
	}
	passed := float64(now-p.counted) / float64(time.Second)
	p.allowed = min(p.allowed+p.rate*passed, max(1, p.rate*(paceDebt+paceBurst).Seconds()))
	p.spurt = min(p.spurt+paceSpurt*p.rate*passed, max(1, paceSpurt*p.rate*paceBurst.Seconds()))
	p.counted = now
	if now-p.looked < int64(paceLook) {
		return
	}
	switch {
	case p.alone():
		p.rate += p.rate / 4
	case p.slowest > int64(paceStrained):
		p.rate, least = min(p.rate, least)/2, least/paceYield
	default:
		p.rate = least
	}
	p.rate = min(max(p.rate, least), least*paceMost)
	p.looked, p.slowest = now, 0
}

// alone reports that nobody else has asked for anything for a while.
func (p *pacer) alone() bool { return p.counted-p.others > int64(Alone) }

// admits reports whether one more timer may be admitted. Beside others no more
// are on their way than fire in a burst, and while others wait none is, until
// the timers have waited long enough.
func (p *pacer) admits() bool {
	switch {
	case p.allowed < 1 || p.spurt < 1 || p.admitted >= admittedTimers:
		return false
	case p.alone() || p.allowed >= max(1, p.rate*paceDebt.Seconds()):
		return true
	}
	return p.latest <= int64(Slow) && float64(p.admitted) < max(1, p.rate*paceBurst.Seconds())
}

// begins reports whether a run of timers may begin: one that would be short
// waits until the next tick.
func (p *pacer) begins() bool {
	return min(p.allowed, p.spurt) >= min(runTimers, p.rate*Tick.Seconds()) && p.admits()
}

// admit counts a timer that is admitted.
func (p *pacer) admit() {
	p.allowed--
	p.spurt--
	p.ahead--
	p.admitted++
}

// committed notes how long a proposal took.
func (p *pacer) committed(nanoseconds int64) {
	p.latest = nanoseconds
	p.slowest = max(p.slowest, nanoseconds)
}

// windows is the shards with timers read ahead, a heap by the first that is
// due.
type windows []*Shard

func (w windows) Len() int { return len(w) }
func (w windows) Less(i, j int) bool {
	a, b := w[i], w[j]
	return cmp.Or(cmp.Compare(a.window[0].Due, b.window[0].Due), cmp.Compare(a.id, b.id)) < 0
}
func (w windows) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *windows) Push(s any)   { *w = append(*w, s.(*Shard)) }
func (w *windows) Pop() any {
	last := len(*w) - 1
	s := (*w)[last]
	(*w)[last] = nil
	*w = (*w)[:last]
	return s
}
