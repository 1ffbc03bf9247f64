package store

import (
	"runtime"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// Badger merges tables in up to five goroutines at a time for each of its
// compactors. None of them waits for anything, so each keeps a processor for as
// long as Go's scheduler lets it, ten milliseconds: with as many of them as there
// are processors a command, which passes through a handful of goroutines, waits
// so long for each. Nothing is gained by it, for tables need not be merged soon.
//
// Badger has no option for that. It reports each table that it has merged, to the
// logger, by the goroutine that goes on with the next one; so that is where they
// take turns.
//
//	merged a table --> its turn? --no--> waits, unless tables pile up --> next table
const (
	// mergedLine is what Badger reports; the last argument is how long it took.
	mergedLine = "[%d] LOG Compact. Added %d keys. Skipped %d keys. Iteration took: %v"
	// mergeShare is the share of all processors that merging may have, one of so
	// many, as long as there are no more than newTables. It is twice that half way
	// to mergePressed, and all from there on: with stalledTables writing stops.
	mergeShare   = 12
	mergePressed = 2 * newTables
	// mergeFree is how long after the last write merging may have everything: what
	// is half merged takes memory.
	mergeFree = time.Second
	// mergeMost bounds what a table counts for. It takes some 10 ms a MiB where
	// nothing else runs, and the largest have 16 MiB.
	mergeMost = 200 * time.Millisecond
)

// merges has the goroutines that merge tables take turns.
type merges struct {
	now        func() time.Time
	after      func(time.Duration) <-chan time.Time
	processors int
	stopped    chan struct{} // nobody waits any more

	mu     sync.Mutex
	db     *badger.DB // nil before it is open
	wrote  time.Time
	next   time.Time // nobody goes on before
	tables int       // merged
}

func newMerges(o *Options) *merges {
	return &merges{now: o.Now, after: o.After, processors: runtime.GOMAXPROCS(0), stopped: make(chan struct{})}
}

// opened begins the pacing.
func (m *merges) opened(db *badger.DB) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.db = db
}

// written is told of each write.
func (m *merges) written() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wrote = m.now()
}

// stop lets all go on; it is called once.
func (m *merges) stop() { close(m.stopped) }

// merged returns when the caller, which has merged a table in the time given, may
// go on with the next.
func (m *merges) merged(took time.Duration) {
	if wait := m.turn(took, m.fresh()); wait > 0 {
		select {
		case <-m.after(wait):
		case <-m.stopped:
		}
	}
}

// fresh is how many new tables there are.
func (m *merges) fresh() int {
	m.mu.Lock()
	db := m.db
	m.mu.Unlock()
	if db == nil {
		return mergePressed // nobody waits while it is being opened
	}
	return db.Levels()[0].NumTables
}

// turn is how long the caller is to wait, with so many new tables.
func (m *merges) turn(took time.Duration, fresh int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tables++
	left, now := min(mergePressed-fresh, newTables), m.now()
	if left <= 0 || now.Sub(m.wrote) > mergeFree {
		return 0
	}
	at := m.next
	if at.Before(now) {
		at = now
	}
	m.next = at.Add(min(took, mergeMost) * mergeShare * time.Duration(left) / time.Duration(newTables*m.processors))
	return at.Sub(now)
}
