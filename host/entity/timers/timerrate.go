package timers

import (
	"cmp"
	"time"
)

// Many timers may be due at the same time, but other requests, those of callers
// and of entities, have priority. So an executor reads the due timers of some
// shards ahead and admits them to their entities at a limited rate. Shards take
// turns, so that a shard with many due timers does not delay the others. The rate is at least Options.Rate, however busy the executor is,
// and grows while there are no other requests to delay.
//
//	due --> read, in its shard's window --> admitted, to its entity's queue --> fired
//	        bounded for the executor            bounded for the executor

const (
	// windowTimers bounds the timers of a shard that are read at a time. If
	// many shards have due timers, fewer are read, but at least windowLeast.
	windowTimers = 256
	windowLeast  = 32
	// windowsTimers bounds the timers of an executor that are read and not
	// admitted.
	windowsTimers = 16384
	// runTimers is the number of timers of a shard that are admitted in a row,
	// so that they share an entry of the log. Then it is another shard's turn.
	runTimers = 32
	// turnRuns bounds the runs in a turn of the executor, because timers that are
	// refused at once do not use the rate.
	turnRuns = 128
	// scansAtOnce bounds concurrent scans. It leaves half of the loaders to
	// callers.
	scansAtOnce = 4
	// admittedTimers bounds the timers that are admitted and not fired.
	// coldTimers bounds the admitted timers whose entities are being loaded, so
	// that the load of a caller's entity waits only for a few of these loads.
	admittedTimers = 1024
	coldTimers     = 32

	// paceMost bounds the rate if there are no other requests, as a multiple of
	// the minimum rate.
	paceMost = 8
	// paceBurst is how long an unused allowance accumulates. paceLook is how
	// often the rate is adjusted. Tick is how often the executor tries again to
	// admit timers that exceeded the rate.
	paceBurst = 20 * time.Millisecond
	paceLook  = 10 * time.Millisecond
	Tick      = 2 * time.Millisecond
	// After paceReset without a timer the rate returns to the minimum. After
	// Alone without other requests the rate grows. Alone is longer than a
	// commit, because a caller that waits for an answer may not send its next
	// request in the meantime.
	paceReset = 100 * time.Millisecond
	Alone     = time.Second
	// If the last commit took longer than Slow, other requests wait, so timers
	// yield to them for at most paceDebt. The allowance that accumulates
	// meanwhile is used later, at up to paceSpurt times the rate. If a commit
	// took longer than paceStrained, the machine is overloaded, and the minimum
	// rate falls to 1/paceYield of its value.
	Slow         = 8 * time.Millisecond
	paceDebt     = 300 * time.Millisecond
	paceSpurt    = 2
	paceStrained = 100 * time.Millisecond
	paceYield    = 8
)

// pacer decides how many timers an executor may admit: a token bucket with an
// adaptive rate. Its clock is the executor's.
type pacer struct {
	rate    float64 // timers per second
	allowed float64 // tokens: timers that may be admitted
	spurt   float64 // tokens that bound how fast allowed is used up
	counted int64   // when allowed and spurt were last updated
	looked  int64   // when rate was last adjusted
	asked   int     // other requests since update last adjusted rate
	others  int64   // when other requests last arrived or waited
	slowest int64   // longest commit since looked, in nanoseconds
	latest  int64   // duration of the last commit, in nanoseconds

	due      []*Shard // scratch space, empty between calls
	windows  windows
	turn     uint64 // turn of the last shard that admitted timers
	ahead    int    // timers in windows
	scans    int    // scans in progress
	admitted int    // number of timers admitted and not fired
	cold     int    // admitted timers whose entities are being loaded
}

// update updates the tokens and the rate. The rate is the minimum while there
// are other requests, and grows fast while there are none. It falls below the
// minimum only if the machine is overloaded.
func (p *pacer) update(now int64, least float64, waiting bool) {
	if p.asked > 0 || waiting {
		p.asked, p.others = 0, now
	}
	if now-p.counted > int64(paceReset) {
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
	case p.isAlone():
		p.rate += p.rate / 4
	case p.slowest > int64(paceStrained):
		p.rate, least = min(p.rate, least)/2, least/paceYield
	default:
		p.rate = least
	}
	p.rate = min(max(p.rate, least), least*paceMost)
	p.looked, p.slowest = now, 0
}

// isAlone reports whether there were no other requests for a while.
func (p *pacer) isAlone() bool { return p.counted-p.others > int64(Alone) }

// canAdmit reports whether one more timer may be admitted. If there are other
// requests, the admitted timers are limited to a burst. No timer is then
// admitted while commits are slow, until the timers have waited for paceDebt.
func (p *pacer) canAdmit() bool {
	switch {
	case p.allowed < 1 || p.spurt < 1 || p.admitted >= admittedTimers:
		return false
	case p.isAlone() || p.allowed >= max(1, p.rate*paceDebt.Seconds()):
		return true
	}
	return p.latest <= int64(Slow) && float64(p.admitted) < max(1, p.rate*paceBurst.Seconds())
}

// canBegin reports whether a run of timers may begin. If only a short run is
// allowed now, it waits until the next tick, because a longer run shares one
// log entry.
func (p *pacer) canBegin() bool {
	return min(p.allowed, p.spurt) >= min(runTimers, p.rate*Tick.Seconds()) && p.canAdmit()
}

// admit counts an admitted timer.
func (p *pacer) admit() {
	p.allowed--
	p.spurt--
	p.ahead--
	p.admitted++
}

// refund takes back that an admitted timer used the rate.
func (p *pacer) refund() {
	p.allowed++
	p.spurt++
}

// noteCommit records the duration of a proposal.
func (p *pacer) noteCommit(nanoseconds int64) {
	p.latest = nanoseconds
	p.slowest = max(p.slowest, nanoseconds)
}

// windows are the shards with timers read ahead, a heap by their turns.
type windows []*Shard

func (w windows) Len() int { return len(w) }
func (w windows) Less(i, j int) bool {
	a, b := w[i], w[j]
	return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.window[0].Due, b.window[0].Due), cmp.Compare(a.id, b.id)) < 0
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
