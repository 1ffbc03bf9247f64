package entity

import (
	"runtime"
	"sync/atomic"
	"time"
)

// preemptAfter is the interval of the watchdog's ticks. A guest call that is
// in progress at two successive ticks is detached.
const preemptAfter = time.Millisecond

// idleTicks is the number of ticks without a turn after which the watchdog
// sleeps.
const idleTicks = 50

// callSlot is the state of the guest call in progress on a goroutine that runs
// the executor. A goroutine makes one call at a time.
type callSlot struct {
	executor *executor
	mark     uint64 // mark of the call that Preempt detaches

	// state is 0 if no call is in progress, the call's odd mark during a call,
	// and preempted once the executor has continued without the call.
	state atomic.Uint64
}

// Preempt detaches the call from the executor. The guest invokes Preempt once
// the call has spent a certain amount of fuel.
func (v *callSlot) Preempt() { v.executor.preempt(v, v.mark) }

const preempted = ^uint64(0)

// runCall makes a guest call on the executor's goroutine. If the call runs
// long, another goroutine takes over the executor. This goroutine then only
// delivers the outcome as an event and ends. Guests are called at the bottom of
// the stack, so ending this goroutine loses nothing else.
//
// The guest itself starts the takeover once it has spent a certain amount of
// fuel, because the watchdog's ticks are late on a busy machine. The watchdog
// starts it if something other than guest code is slow. A call that opens an
// instance is known to be slow.
func (l *executor) runCall(call *guestCall) bool {
	v := l.current.Load()
	l.callMarks += 2
	mark := l.callMarks | 1
	v.state.Store(mark)
	var long preempter
	if call.OpensInstance() {
		l.preempt(v, mark)
	} else {
		v.mark, long = mark, v
	}
	began := l.opts.Now()
	call.Exec(long)
	call.SetTimes(began, l.opts.Now())
	if v.state.CompareAndSwap(mark, 0) {
		return true
	}
	l.put(coreEvent{Kind: eventCallReturned, Call: call})
	runtime.Goexit()
	return false
}

// preempt starts another goroutine that takes over the executor, if the call
// with this mark is still in progress.
func (l *executor) preempt(v *callSlot, mark uint64) {
	if v.state.CompareAndSwap(mark, preempted) {
		l.stats.preemptions.Add(1)
		go l.run(true)
	}
}

// runWatchdog is the watchdog: it watches the executor's guest calls while the
// executor has turns, and detaches calls that run long. It sleeps while the
// executor does.
func (l *executor) runWatchdog() {
	defer close(l.watchdogDone)
	tick := time.NewTicker(preemptAfter)
	defer tick.Stop()
	for {
		tick.Stop()
		select {
		case <-l.stop:
			return
		case <-l.began:
		}
		tick.Reset(preemptAfter)
		var seen, turns uint64
		for rest := 0; rest < idleTicks; {
			select {
			case <-l.stop:
				return
			case <-tick.C:
			}
			v := l.current.Load()
			mark, n := v.state.Load(), l.turns.Load()
			switch {
			case mark == preempted: // the goroutine that takes over the executor does not run yet
				rest = 0
			case mark != 0 && mark == seen:
				l.preempt(v, mark)
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
