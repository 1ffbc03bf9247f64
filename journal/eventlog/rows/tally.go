package rows

import (
	"math"

	"github.com/hostd/hostd/journal/eventlog/sorted"
)

// tally counts rows by their place in the order, so that a scan of a range can
// be checked for completeness. A change costs O(log n) in the number of places
// with rows, because the applying goroutine makes it under the lock.
type tally struct {
	line  sorted.Map[int64, uint32] // number of rows at each place
	total uint64
}

// placeCount is the number of rows at one place.
type placeCount struct {
	at int64
	n  uint32
}

// change adds a row, or removes a row if add is false.
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

// maxExpected limits how many places of a tally one scan is compared with.
const maxExpected = 4096

// expect returns the rows that a scan must find if it starts at place from and
// reads up to the first row after place to. Rows before from are not expected.
func (t *tally) expect(from, to int64) *Expected {
	e := &Expected{end: math.MaxInt64, total: t.total}
	for at, n := range t.line.From(from) {
		if e.want = append(e.want, placeCount{at, n}); at > to || len(e.want) == maxExpected {
			e.end = at
			break
		}
	}
	return e
}

// Expected lists the places with rows that a scan must find, in order.
type Expected struct {
	want  []placeCount
	end   int64 // from this place on, nothing is known
	n     uint32
	seen  uint64
	total uint64
}

// Add adds the next row of the scan, and reports whether all rows before its
// place were found.
func (e *Expected) Add(at int64) bool {
	e.seen++
	if !e.IsPast(at) {
		return false
	}
	if at >= e.end {
		return true
	}
	e.n++
	return len(e.want) > 0 && e.want[0].at == at
}

// IsComplete reports whether a scan to the end has found all rows.
func (e *Expected) IsComplete() bool { return e.IsPast(math.MaxInt64) && e.seen == e.total }

// IsPast reports whether all rows before a place were found.
func (e *Expected) IsPast(at int64) bool {
	for len(e.want) > 0 && e.want[0].at < min(at, e.end) {
		if e.want[0].n != e.n {
			return false
		}
		e.want, e.n = e.want[1:], 0
	}
	return true
}

// DueSlot returns the tally slot of a due time; slots are 69 seconds long.
func DueSlot(due int64) int64 { return due >> 36 }
