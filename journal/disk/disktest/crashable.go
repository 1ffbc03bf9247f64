// Package disktest is a disk in memory for tests, which loses at a power cut
// what was not synced and fails when it is told to. It starts no goroutine.
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

// ErrPowerCut is what every operation returns between the power cut asked for
// by CutAfter and the call of Crash.
var ErrPowerCut = errors.New("power cut")

// Crashable is a disk in memory with two views: what a running process sees,
// and what is on the platter. They are equal only for what was synced. Crash
// throws the first away and makes up the second as a power cut may have left
// it. All its choices come from the generator given to NewCrashable, in the
// order of the calls: the same calls with the same seed leave the same bytes.
// It starts no goroutine; its methods may be called from several.
//
//	           WriteAt, Truncate                 Sync
//	process ──────────────────────▶ unsynced ──────────────▶ platter
//	                                   │  Crash: sector by sector, kept or lost ▲
//	                                   └────────────────────────────────────────┘
type Crashable struct {
	mu   sync.Mutex
	rng  *rand.Rand
	live map[string]*inode // names as a process sees them
	kept map[string]*inode // names on the platter
	dirs map[string]bool
	// names not yet synced, in the order they were made
	pending    []nameChange
	lastWrite  *inode
	nextInode  int
	generation int
	faults     faults
}

var _ disk.FS = (*Crashable)(nil)

// nameChange is an unsynced change of a directory. A rename has both names, a
// creation only to, a removal only from.
type nameChange struct {
	from, to string
	node     *inode
}

// NewCrashable returns an empty disk that draws from rng.
func NewCrashable(rng *rand.Rand) *Crashable {
	return &Crashable{
		rng:  rng,
		live: map[string]*inode{},
		kept: map[string]*inode{},
		dirs: map[string]bool{".": true, string(filepath.Separator): true},
	}
}

// Crash is the power cut: it invalidates every open file, and what was not
// synced is kept or lost at random, writes by the sector with the last one torn
// at any byte, names one by one. Faults asked for and not yet met are
// forgotten, damaged ranges stay.
func (c *Crashable) Crash() {
	c.mu.Lock()
	defer c.mu.Unlock()
	nodes := c.inodes()
	keep := c.chance()
	for _, n := range nodes {
		n.crash(c.rng, keep, n == c.lastWrite)
	}
	keep = c.chance()
	for _, change := range c.pending {
		if c.rng.Float64() < keep {
			c.settle(change)
		}
	}
	c.live = map[string]*inode{}
	for name, n := range c.kept {
		c.live[name] = n
	}
	c.pending, c.lastWrite = nil, nil
	c.generation++
	c.faults = faults{limit: c.faults.limit, limited: c.faults.limited, unreadable: c.faults.unreadable}
}

// Kill is the end of the process alone: it invalidates every open file and
// loses nothing, since the operating system still holds what was not synced.
func (c *Crashable) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
}

// Clone is a copy of the disk between two processes: the files that a process
// would see, all of them on the platter, and none of the faults. It draws from
// the same generator.
func (c *Crashable) Clone() *Crashable {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := NewCrashable(c.rng)
	out.nextInode = c.nextInode
	for _, n := range c.inodes() {
		bytes := append([]byte(nil), n.live...)
		copied := &inode{number: n.number, live: bytes, kept: append([]byte(nil), bytes...)}
		for name, at := range c.live {
			if at == n {
				out.live[name], out.kept[name] = copied, copied
			}
		}
	}
	maps.Copy(out.dirs, c.dirs)
	return out
}

// chance draws how much of what was not synced survives, with nothing and
// everything likely enough to be met often.
func (c *Crashable) chance() float64 {
	return [...]float64{0, 0.1, 0.5, 0.5, 0.9, 1}[c.rng.IntN(6)]
}

// inodes returns every file that either view can reach, oldest first.
func (c *Crashable) inodes() []*inode {
	seen := map[*inode]bool{}
	var nodes []*inode
	for _, names := range []map[string]*inode{c.live, c.kept} {
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

// settle brings one change of names to the platter, unless a change it builds
// on was lost.
func (c *Crashable) settle(change nameChange) {
	if change.from != "" {
		if c.kept[change.from] != change.node {
			return
		}
		delete(c.kept, change.from)
	}
	if change.to != "" {
		c.kept[change.to] = change.node
	}
}
