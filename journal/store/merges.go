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
	// many, as long as no more than newTables are owed. It grows from there on, to
	// twice that half way to mergePressed and all at it. So what is written in half
	// a minute waits until nobody writes for mergeFree, if that is soon.
	mergeShare   = 48
	mergePressed = 2 * newTables
	// mergeFree is how long after the last write merging may have everything: what
	// is half merged takes memory.
	mergeFree = time.Second
	// mergeMost bounds what a table counts for. It takes some 10 ms a MiB where
	// nothing else runs, and the largest have 16 MiB.
	mergeMost = 200 * time.Millisecond
	// mergeLook is how often who waits looks at how much is owed.
	mergeLook = 100 * time.Millisecond
)

// merges has the goroutines that merge tables take turns. What each took is
// billed; who comes back goes on once all that was billed before is paid for, by
// the time that passes and the share.
type merges struct {
	now        func() time.Time
	after      func(time.Duration) <-chan time.Time
	processors int
	tableBytes int64         // of a new one
	stopped    chan struct{} // nobody waits any more

	mu     sync.Mutex
	db     *badger.DB // nil before it is open
	wrote  time.Time
	billed time.Duration // of processors, since the start
	paid   time.Duration // of these, as of looked
	looked time.Time
	tables int // merged
}

func newMerges(o *Options) *merges {
	return &merges{
		now: o.Now, after: o.After, stopped: make(chan struct{}), tableBytes: o.MemTableBytes,
		processors: min(runtime.GOMAXPROCS(0), runtime.NumCPU()),
	}
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
	owed := m.owed()
	for ticket := m.bill(took, owed); ; owed = m.owed() {
		wait := m.wait(ticket, owed)
		if wait == 0 {
			return
		}
		select {
		case <-m.after(min(wait, mergeLook)):
		case <-m.stopped:
			return
		}
	}
}

// owed is what is to be merged, in new tables.
func (m *merges) owed() int {
	m.mu.Lock()
	db := m.db
	m.mu.Unlock()
	if db == nil {
		return mergePressed // nobody waits while it is being opened
	}
	return owedTables(db.Levels(), m.tableBytes)
}

// owedTables is that for levels, where a new table has so many bytes. Badger may
// join new tables to one instead of merging them down, and fills a level far
// beyond its size before it empties it: so what counts is bytes.
func owedTables(levels []badger.LevelInfo, tableBytes int64) int {
	bytes := levels[0].Size
	for _, l := range levels[1:] {
		if l.Level < len(levels)-1 { // the last has no bound
			bytes += max(0, l.Size-l.TargetSize)
		}
	}
	return max(levels[0].NumTables, int(bytes/tableBytes))
}

// bill counts a table and returns what is to be paid for before its goroutine
// goes on.
func (m *merges) bill(took time.Duration, owed int) (ticket time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pay(owed)
	m.tables++
	ticket = m.billed
	m.billed += min(took, mergeMost)
	return ticket
}

// wait is how long it takes until a ticket is paid for, if as much stays owed as
// now; 0 if it is.
func (m *merges) wait(ticket time.Duration, owed int) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	part, of := m.pay(owed)
	if m.paid >= ticket {
		return 0
	}
	return ((ticket-m.paid)*of + part - 1) / part
}

// pay brings what is paid up to date. Merging may have a part of so many of the
// time that passes, with so many tables owed.
func (m *merges) pay(owed int) (part, of time.Duration) {
	now := m.now()
	passed := now.Sub(m.looked)
	m.looked = now
	left := min(mergePressed-owed, newTables)
	if left <= 0 || now.Sub(m.wrote) > mergeFree {
		m.paid = m.billed
		return 1, 1
	}
	part, of = time.Duration(newTables*m.processors), mergeShare*time.Duration(left)
	if passed >= (m.billed-m.paid)*of/part {
		m.paid = m.billed
	} else {
		m.paid += passed * part / of
	}
	return part, of
}
