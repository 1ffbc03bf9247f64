package rows

import (
	"math"

	"github.com/hostd/hostd/journal/eventlog/sorted"
)

// tally counts rows by where they are in their order, so that a scan of a part
// of them can be told to be whole. A change takes O(log n) of the places that
// have rows, wherever it is: the goroutine that applies makes it under the
// lock.
type tally struct {
	line  sorted.Map[int64, uint32] // how many rows there are at a place
	total uint64
}

// counted is how many rows there are at one place of the order.
type counted struct {
	at int64
	n  uint32
}

// change adds a row, or takes one away with false.
func (t *tally) change(at int64, add bool) {
	n, _ := t.line.Get(at)
	switch {
	case add:
		t.line.Set(at, n+1)
		t.total++
		return
	case n > 1:
		t.line.Set(at, n-1)
	default:
		t.line.Delete(at)
	}
	t.total--
}

// maxExpected bounds how much of a tally one scan is compared with.
const maxExpected = 4096

// expect returns what a scan has to meet that begins at a place and goes up to
// another, and on to the first row beyond. Rows before from are not met.
func (t *tally) expect(from, to int64) *Expected {
	e := &Expected{end: math.MaxInt64, total: t.total}
	for at, n := range t.line.From(from) {
		if e.want = append(e.want, counted{at, n}); at > to || len(e.want) == maxExpected {
			e.end = at
			break
		}
	}
	return e
}

// Expected is what a scan has to meet, in order.
type Expected struct {
	want  []counted
	end   int64 // from there on it is not known
	n     uint32
	seen  uint64
	total uint64
}

// Meet takes in the next row of the scan, and reports whether all that come
// before its place were there.
func (e *Expected) Meet(at int64) bool {
	e.seen++
	if !e.Passed(at) {
		return false
	}
	if at >= e.end {
		return true
	}
	e.n++
	return len(e.want) > 0 && e.want[0].at == at
}

// All reports whether all rows of a scan that went to the end were there.
func (e *Expected) All() bool { return e.Passed(math.MaxInt64) && e.seen == e.total }

// Passed reports whether all rows before a place were there.
func (e *Expected) Passed(at int64) bool {
	for len(e.want) > 0 && e.want[0].at < min(at, e.end) {
		if e.want[0].n != e.n {
			return false
		}
		e.want, e.n = e.want[1:], 0
	}
	return true
}

// DueSlot is the part of a tally that a timer is in: 69 seconds.
func DueSlot(due int64) int64 { return due >> 36 }
