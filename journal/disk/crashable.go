package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// ErrPowerCut is what every operation returns between the power cut asked for by CutAfter and the call of Crash.
var ErrPowerCut = errors.New("power cut")

// Crashable is a disk in memory with two views: what a running process sees, and what is on the platter. They are
// equal only for what was synced. Crash throws the first away and makes up the second as a power cut may have left it.
// All its choices come from the generator given to NewCrashable, in the order of the calls: the same calls with the
// same seed leave the same bytes. It starts no goroutine; its methods may be called from several.
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

var _ FS = (*Crashable)(nil)

// nameChange is an unsynced change of a directory. A rename has both names, a creation only to, a removal only from.
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

// Crash is the power cut: it invalidates every open file, and what was not synced is kept or lost at random, writes
// by the sector with the last one torn at any byte, names one by one. Faults asked for and not yet met are forgotten,
// damaged ranges stay.
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

// Kill is the end of the process alone: it invalidates every open file and loses nothing, since the operating system
// still holds what was not synced.
func (c *Crashable) Kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
}

// chance draws how much of what was not synced survives, with nothing and everything likely enough to be met often.
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

// settle brings one change of names to the platter, unless a change it builds on was lost.
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

// OpenFile implements FS.
func (c *Crashable) OpenFile(name string, access Access) (File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = filepath.Clean(name)
	if c.faults.cut {
		return nil, pathError("open", name, ErrPowerCut)
	}
	n := c.live[name]
	if n == nil {
		return nil, pathError("open", name, fs.ErrNotExist)
	}
	return &crashableFile{disk: c, node: n, name: name, access: access, generation: c.generation}, nil
}

// Create implements FS.
func (c *Crashable) Create(name string, size int64) (File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = filepath.Clean(name)
	if !c.dirs[filepath.Dir(name)] {
		return nil, pathError("create", name, fs.ErrNotExist)
	}
	if c.faults.step() {
		return nil, pathError("create", name, ErrPowerCut)
	}
	n := c.live[name]
	used := c.used()
	if n != nil {
		used -= int64(len(n.live))
	}
	if c.faults.limited && used+size > c.faults.limit {
		return nil, pathError("create", name, errNoSpace)
	}
	if n == nil {
		n = &inode{number: c.nextInode}
		c.nextInode++
		c.live[name] = n
		c.pending = append(c.pending, nameChange{to: name, node: n})
	}
	n.resize(0)
	n.resize(size)
	return &crashableFile{disk: c, node: n, name: name, access: ReadWrite, generation: c.generation}, nil
}

// Rename implements FS.
func (c *Crashable) Rename(from, to string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, to = filepath.Clean(from), filepath.Clean(to)
	if filepath.Dir(from) != filepath.Dir(to) {
		return pathError("rename", from, fmt.Errorf("%s is in another directory", to))
	}
	if c.faults.step() {
		return pathError("rename", from, ErrPowerCut)
	}
	n := c.live[from]
	if n == nil {
		return pathError("rename", from, fs.ErrNotExist)
	}
	delete(c.live, from)
	c.live[to] = n
	c.pending = append(c.pending, nameChange{from: from, to: to, node: n})
	return nil
}

// Remove implements FS.
func (c *Crashable) Remove(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = filepath.Clean(name)
	if c.faults.step() {
		return pathError("remove", name, ErrPowerCut)
	}
	n := c.live[name]
	if n == nil {
		return pathError("remove", name, fs.ErrNotExist)
	}
	delete(c.live, name)
	c.pending = append(c.pending, nameChange{from: name, node: n})
	return nil
}

// List implements FS.
func (c *Crashable) List(dir string) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir = filepath.Clean(dir)
	if c.faults.cut {
		return nil, pathError("list", dir, ErrPowerCut)
	}
	if !c.dirs[dir] {
		return nil, pathError("list", dir, fs.ErrNotExist)
	}
	var names []string
	for name := range c.live {
		if filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	for name := range c.dirs {
		if name != dir && filepath.Dir(name) == dir {
			names = append(names, filepath.Base(name))
		}
	}
	slices.Sort(names)
	return names, nil
}

// SyncDir implements FS.
func (c *Crashable) SyncDir(dir string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	dir = filepath.Clean(dir)
	if !c.dirs[dir] {
		return pathError("sync", dir, fs.ErrNotExist)
	}
	if c.faults.step() {
		return pathError("sync", dir, ErrPowerCut)
	}
	if err := c.faults.sync(); err != nil {
		return pathError("sync", dir, err)
	}
	rest := c.pending[:0]
	for _, change := range c.pending {
		if filepath.Dir(cmp.Or(change.to, change.from)) == dir {
			c.settle(change)
		} else {
			rest = append(rest, change)
		}
	}
	c.pending = rest
	return nil
}

// MkdirAll implements FS. Directories are durable at once and cannot be removed.
func (c *Crashable) MkdirAll(dir string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.faults.step() {
		return pathError("mkdir", dir, ErrPowerCut)
	}
	for dir = filepath.Clean(dir); !c.dirs[dir]; dir = filepath.Dir(dir) {
		if c.live[dir] != nil {
			return pathError("mkdir", dir, fs.ErrExist)
		}
		c.dirs[dir] = true
	}
	return nil
}

// Stat implements FS.
func (c *Crashable) Stat(name string) (Info, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = filepath.Clean(name)
	switch n := c.live[name]; {
	case c.faults.cut:
		return Info{}, pathError("stat", name, ErrPowerCut)
	case n != nil:
		return Info{Size: int64(len(n.live))}, nil
	case c.dirs[name]:
		return Info{Dir: true}, nil
	default:
		return Info{}, pathError("stat", name, fs.ErrNotExist)
	}
}

// FreeBytes implements FS: the rest of what LimitSpace set, or of 1 TiB.
func (c *Crashable) FreeBytes(string) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.faults.cut {
		return 0, ErrPowerCut
	}
	limit := int64(1 << 40)
	if c.faults.limited {
		limit = c.faults.limit
	}
	return max(0, limit-c.used()), nil
}

// used is the space taken by files as a process sees them.
func (c *Crashable) used() int64 {
	var total int64
	for _, n := range c.live {
		total += int64(len(n.live))
	}
	return total
}

// String lists the files with their lengths and their unsynced writes, for a failing test.
func (c *Crashable) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	names := make([]string, 0, len(c.live))
	for name := range c.live {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		n := c.live[name]
		fmt.Fprintf(&b, "%s %d bytes, %d unsynced changes\n", name, len(n.live), len(n.changes))
	}
	return b.String()
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}
