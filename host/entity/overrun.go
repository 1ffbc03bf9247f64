package entity

import (
	"runtime"
	"time"
)

// overrunAfter is how long a visit may hold up the lane: seen under way at
// two beats in a row, it is left to itself.
const overrunAfter = time.Millisecond

// restBeats without a turn send the overseer to sleep.
const restBeats = 50

// visit calls a guest on the lane's goroutine. If that takes long, the
// overseer gives the lane to another goroutine meanwhile; this one then only
// brings the outcome back, as an event, and ends. Guests are visited at the
// foot of the stack, so nothing else is lost with it.
func (l *Lane) visit(v *call) bool {
	l.visits += 2
	mark := l.visits | 1
	v.state.Store(mark)
	v.exec()
	if v.state.CompareAndSwap(mark, 0) {
		return true
	}
	l.put(event{kind: evReturned, call: v})
	runtime.Goexit()
	return false
}

// oversee watches the lane's visits while it has turns, and hands the lane on
// from one that runs long. It sleeps while the lane does.
func (l *Lane) oversee() {
	defer close(l.overseen)
	beat := time.NewTicker(overrunAfter)
	defer beat.Stop()
	for {
		beat.Stop()
		select {
		case <-l.stop:
			return
		case <-l.began:
		}
		beat.Reset(overrunAfter)
		var seen, turns uint64
		for rest := 0; rest < restBeats; {
			select {
			case <-l.stop:
				return
			case <-beat.C:
			}
			v := l.current.Load()
			mark, n := v.state.Load(), l.turns.Load()
			switch {
			case mark == handed: // the lane's next goroutine has not run yet
				rest = 0
			case mark != 0 && mark == seen && v.state.CompareAndSwap(mark, handed):
				l.stats.overruns.Add(1)
				go l.run(true)
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
