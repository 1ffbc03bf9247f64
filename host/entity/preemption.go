package entity

import (
	"runtime"
	"sync/atomic"
	"time"
)

// handoverAfter is how long a visit may hold up the executor: seen under way at
// two beats in a row, it is left to itself.
const handoverAfter = time.Millisecond

// idleBeats without a turn send the overseer to sleep.
const idleBeats = 50

// visit is what a goroutine that has the executor visits, one guest after the
// other.
type visit struct {
	// long gives the executor away from the visit with this mark.
	long func()
	mark uint64

	// state is 0 when no visit is under way, an odd number of its own while
	// one is, and handed once the executor went on without it.
	state atomic.Uint64
}

const handed = ^uint64(0)

// visit calls a guest on the executor's goroutine. If that takes long, the executor is
// given to another goroutine meanwhile; this one then only brings the outcome
// back, as an event, and ends. Guests are visited at the foot of the stack, so
// nothing else is lost with it.
//
// Who gives the executor away is the guest itself, when it has spent so much of its
// fuel, or the overseer, when something else takes long: on a busy machine the
// overseer's beats come late. A visit that opens an instance is known to take
// long.
func (l *executor) visit(call *guestCall) bool {
	v := l.current.Load()
	l.visits += 2
	mark := l.visits | 1
	v.state.Store(mark)
	var long func()
	if call.Opens() {
		l.handOn(v, mark)
	} else {
		v.mark = mark
		if v.long == nil {
			v.long = func() { l.handOn(v, v.mark) }
		}
		long = v.long
	}
	began := l.opts.Now()
	call.Exec(long)
	call.Between(began, l.opts.Now())
	if v.state.CompareAndSwap(mark, 0) {
		return true
	}
	l.put(coreEvent{Kind: eventCallReturned, Call: call})
	runtime.Goexit()
	return false
}

// handOn gives the executor to another goroutine, if the visit with that mark still
// has it.
func (l *executor) handOn(v *visit, mark uint64) {
	if v.state.CompareAndSwap(mark, handed) {
		l.stats.handovers.Add(1)
		go l.run(true)
	}
}

// oversee watches the executor's visits while it has turns, and hands the executor on
// from one that runs long. It sleeps while the executor does.
func (l *executor) oversee() {
	defer close(l.overseen)
	beat := time.NewTicker(handoverAfter)
	defer beat.Stop()
	for {
		beat.Stop()
		select {
		case <-l.stop:
			return
		case <-l.began:
		}
		beat.Reset(handoverAfter)
		var seen, turns uint64
		for rest := 0; rest < idleBeats; {
			select {
			case <-l.stop:
				return
			case <-beat.C:
			}
			v := l.current.Load()
			mark, n := v.state.Load(), l.turns.Load()
			switch {
			case mark == handed: // the executor's next goroutine has not run yet
				rest = 0
			case mark != 0 && mark == seen:
				l.handOn(v, mark)
				seen, rest = 0, 0
				continue
			case mark == 0 && n == turns:
				rest++
			default:
				rest = 0
			}
			seen, turns = mark, n
		}
	}
}
