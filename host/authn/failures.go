package authn

import (
	"sync"
	"time"
)

// Bounds of what is known of refused requests.
const (
	maxFailures  = 10 // of an address in a second
	maxAddresses = 4096
)

// failures counts refused requests by the second and the address of their
// callers. The table has at most maxAddresses; the others share one count.
type failures struct {
	mu     sync.Mutex
	second int64
	by     map[string]int
	rest   int // of addresses beyond those of by
}

// tooMany counts a refused request, and reports whether those of its address
// are too many in this second. A good credential is never asked about here: who
// shares an address with somebody's wrong ones goes on.
func (f *failures) tooMany(address string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if second := now.Unix(); second != f.second || f.by == nil {
		f.second, f.rest = second, 0
		f.by = make(map[string]int)
	}
	n, known := f.by[address]
	if !known && len(f.by) >= maxAddresses {
		f.rest++
		return f.rest > maxFailures
	}
	f.by[address] = n + 1
	return n >= maxFailures
}
