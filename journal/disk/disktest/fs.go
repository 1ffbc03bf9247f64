package disktest

import (
	"cmp"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hostd/hostd/journal/disk"
)

// OpenFile implements FS.
func (c *Crashable) OpenFile(name string, access disk.Access) (disk.File, error) {
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
func (c *Crashable) Create(name string, size int64) (disk.File, error) {
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
	used := c.usedBytes()
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
	return &crashableFile{disk: c, node: n, name: name, access: disk.ReadWrite, generation: c.generation}, nil
}

// Rename implements FS.
func (c *Crashable) Rename(from, to string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	from, to = filepath.Clean(from), filepath.Clean(to)
	if filepath.Dir(from) != filepath.Dir(to) {
		return pathError("rename", from, fmt.Errorf("%s is in a different directory", to))
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
			c.apply(change)
		} else {
			rest = append(rest, change)
		}
	}
	c.pending = rest
	return nil
}

// MkdirAll implements FS. Directories are durable at once and cannot be
// removed.
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
func (c *Crashable) Stat(name string) (disk.Info, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = filepath.Clean(name)
	switch n := c.live[name]; {
	case c.faults.cut:
		return disk.Info{}, pathError("stat", name, ErrPowerCut)
	case n != nil:
		return disk.Info{Size: int64(len(n.live))}, nil
	case c.dirs[name]:
		return disk.Info{Dir: true}, nil
	default:
		return disk.Info{}, pathError("stat", name, fs.ErrNotExist)
	}
}

// FreeBytes implements FS. It returns the remainder of LimitSpace, or of 1 TiB.
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
	return max(0, limit-c.usedBytes()), nil
}

// usedBytes returns the space taken by files in the process's view.
func (c *Crashable) usedBytes() int64 {
	var total int64
	for _, n := range c.live {
		total += int64(len(n.live))
	}
	return total
}

// String lists the files with their lengths and unsynced changes, for test
// failures.
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
