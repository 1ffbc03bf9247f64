// Package disktest is an in-memory disk for tests. It loses unsynced data at a
// power cut and can inject faults. It starts no goroutine.
package disktest

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"

	"github.com/hostd/hostd/journal/disk"
)

// ErrPowerCut is returned by every operation between the power cut scheduled by
// CutAfter and the call of Crash.
var ErrPowerCut = errors.New("power cut")

// Crashable is an in-memory disk with two views: the files that a running
// process sees, and the platter. The views agree only on synced data. Crash
// discards the process's view and chooses a platter that a power cut may have
// left. All random choices come from the generator passed to NewCrashable, in
// the order of the calls, so the same calls with the same seed leave the same
// bytes. It starts no goroutine; its methods may be called concurrently.
//
//	           WriteAt, Truncate                 Sync
//	process ──────────────────────▶ unsynced ──────────────▶ platter
//	                                   │  Crash: sector by sector, kept or lost ▲
//	                                   └────────────────────────────────────────┘
type Crashable struct {
	mu      sync.Mutex
	rng     *rand.Rand
	live    map[string]*inode // names as a process sees them
	platter map[string]*inode // names on the platter
	dirs    map[string]bool
	// pending are unsynced directory changes, in order
	pending    []nameChange
	lastWrite  *inode
	nextInode  int
	generation int
	faults     faults
}

var _ disk.FS = (*Crashable)(nil)

// nameChange is an unsynced change of a directory. A rename sets both names, a
// creation only to, a removal only from.
type nameChange struct {
	from, to string
	node     *inode
}

// NewCrashable returns an empty disk that gets its randomness from rng.
func NewCrashable(rng *rand.Rand) *Crashable {
	return &Crashable{
		rng:     rng,
		live:    map[string]*inode{},
		platter: map[string]*inode{},
		dirs:    map[string]bool{".": true, string(filepath.Separator): true},
	}
}

// Crash simulates a power cut. It invalidates every open file, and keeps or
// loses unsynced changes at random: writes by the sector, the last write torn
// at any byte, and directory changes one by one. Scheduled faults are cleared;
// damaged ranges stay.
func (c *Crashable) Crash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := c.inodes()
	keep := c.drawSurvival()
	for _, n := range nodes {
		n.crash(c.rng, keep, n == c.lastWrite)
	}
	keep = c.drawSurvival()
	for _, change := range c.pending {
		if c.rng.Float64() < keep {
			c.apply(change)
		}
	}
	c.live = map[string]*inode{}
	for name, n := range c.platter {
		c.live[name] = n
	}
	c.pending, c.lastWrite = nil, nil
	c.generation++
	c.faults = faults{limit: c.faults.limit, limited: c.faults.limited, unreadable: c.faults.unreadable}
}

// Kill simulates the end of the process. It invalidates every open file and
// loses nothing, because the operating system still holds unsynced data.
func (c *Crashable) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
}

// Clone returns a copy of the disk as it is between two processes: every file
// that a process would see is on the copy's platter, and no faults are
// scheduled. The copy uses the same random generator.
func (c *Crashable) Clone() *Crashable {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := NewCrashable(c.rng)
	out.nextInode = c.nextInode
	for _, n := range c.inodes() {
		bytes := append([]byte(nil), n.live...)
		copied := &inode{number: n.number, live: bytes, platter: append([]byte(nil), bytes...)}
		for name, at := range c.live {
			if at == n {
				out.live[name], out.platter[name] = copied, copied
			}
		}
	}
	maps.Copy(out.dirs, c.dirs)
	return out
}

// drawSurvival draws the fraction of unsynced data that survives. Nothing and
// everything are drawn often.
func (c *Crashable) drawSurvival() float64 {
	return [...]float64{0, 0.1, 0.5, 0.5, 0.9, 1}[c.rng.IntN(6)]
}

// inodes returns every file reachable from either view, oldest first.
func (c *Crashable) inodes() []*inode {
	seen := map[*inode]bool{}
	var nodes []*inode
	for _, names := range []map[string]*inode{c.live, c.platter} {
		for _, n := range names {
			if !seen[n] {
				seen[n] = true
				nodes = append(nodes, n)
			}
		}
	}
	slices.SortFunc(nodes, func(a, b *inode) int { return cmp.Compare(a.number, b.number) })
	return nodes
}

// apply applies a directory change to the platter, unless a change it depends
// on was lost.
func (c *Crashable) apply(change nameChange) {
	if change.from != "" {
		if c.platter[change.from] != change.node {
			return
		}
		delete(c.platter, change.from)
	}
	if change.to != "" {
		c.platter[change.to] = change.node
	}
}
