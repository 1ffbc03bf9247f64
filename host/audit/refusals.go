package audit

import "sync"

// Bounds of the refusals that get lines.
const (
	maxRefusals = 100 // of a caller in a second
	maxCallers  = 4096
)

// refusals bounds the lines of what was refused: a caller whose every call is
// refused does not fill the disk. It is safe for concurrent use.
type refusals struct {
	mu     sync.Mutex
	second int64
	lines  map[string]int    // of this second, by caller; at most maxCallers
	left   map[string]uint64 // without lines, since the caller's last one; the same
	rest   string            // the caller of all those beyond maxCallers
}

// take counts a refusal of a caller. It reports whether there is a line for it,
// and how many before it had none.
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
