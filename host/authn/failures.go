package authn

import (
	"sync"
	"time"
)

// Limits of failures.
const (
	maxFailures  = 10 // rejected requests per address and second
	maxAddresses = 4096
)

// failures counts rejected requests per second and address. It holds at most
// maxAddresses; all other addresses share one count.
type failures struct {
	mu     sync.Mutex
	second int64
	by     map[string]int
	rest   int // rejected requests of all addresses that are not in by
}

// tooMany counts a rejected request and reports whether its address has had too
// many in this second. Requests with a valid credential never get here, so a
// caller is not affected by failures of other callers at the same address.
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
