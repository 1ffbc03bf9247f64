package audit

import "sync"

// Limits on the lines about rejected calls.
const (
	maxRefusals = 100 // lines per caller and second
	maxCallers  = 4096
)

// refusals limits the rate of lines about rejected calls, so that a caller
// whose calls are all rejected cannot fill the disk. It is safe for concurrent
// use.
type refusals struct {
	mu     sync.Mutex
	second int64
	lines  map[string]int    // lines in this second by caller; at most maxCallers
	left   map[string]uint64 // rejected calls by caller since its last line; at most maxCallers
	rest   string            // the key shared by all callers beyond maxCallers; always ""
}

// take counts a rejected call. ok reports whether it gets a line, and left
// is how many calls of the caller got no line since its last line.
func (r *refusals) take(caller string, second int64) (left uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if second != r.second || r.lines == nil {
		r.second, r.lines = second, make(map[string]int)
		if r.left == nil || len(r.left) >= maxCallers {
			r.left = make(map[string]uint64)
		}
	}
	if _, known := r.lines[caller]; !known && len(r.lines) >= maxCallers-1 {
		caller = r.rest
	}
	if r.lines[caller] >= maxRefusals {
		if _, known := r.left[caller]; known || len(r.left) < maxCallers {
			r.left[caller]++
		}
		return 0, false
	}
	r.lines[caller]++
	left = r.left[caller]
	delete(r.left, caller)
	return left, true
}
