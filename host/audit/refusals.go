package audit

import "sync"

// Limits on the lines about rejected calls.
const (
	maxRefusals = 100 // lines per caller and second
	maxCallers  = 4096
	// maxUnidentified limits the lines per second about callers without an
	// identity from one address, and maxAllUnidentified those from all
	// addresses. A caller with an identity can be stopped by revoking it; anybody
	// else could rotate all other lines away.
	maxUnidentified    = 2
	maxAllUnidentified = 64
)

// refuser is the caller of a rejected call, or all callers without an identity
// from one address.
type refuser struct {
	identity string // KIND/NAME, or the kind for nodes; empty for callers without an identity
	client   string // the address or network, from network.ClientOf
}

// refusals limits the rate of lines about rejected calls, so that a caller
// whose calls are all rejected cannot fill the disk. It is safe for concurrent
// use.
type refusals struct {
	mu           sync.Mutex
	second       int64
	lines        map[refuser]int    // lines in this second by caller; at most maxCallers
	unidentified int                // lines in this second about callers without an identity
	left         map[refuser]uint64 // rejected calls by caller since its last line; at most maxCallers
}

// rest is the key shared by all callers beyond maxCallers.
var rest refuser

// take counts a rejected call. ok reports whether it gets a line, and left
// is how many calls of the caller got no line since its last line.
func (r *refusals) take(caller refuser, second int64) (left uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if second != r.second || r.lines == nil {
		r.second, r.lines, r.unidentified = second, make(map[refuser]int), 0
		if r.left == nil || len(r.left) >= maxCallers {
			r.left = make(map[refuser]uint64)
		}
	}
	most, unidentified := maxRefusals, caller.identity == ""
	if unidentified {
		most = maxUnidentified
	}
	if _, known := r.lines[caller]; !known && len(r.lines) >= maxCallers-1 {
		caller = rest
	}
	if r.lines[caller] >= most || unidentified && r.unidentified >= maxAllUnidentified {
		if _, known := r.left[caller]; known || len(r.left) < maxCallers {
			r.left[caller]++
		}
		return 0, false
	}
	if unidentified {
		r.unidentified++
	}
	r.lines[caller]++
	left = r.left[caller]
	delete(r.left, caller)
	return left, true
}
