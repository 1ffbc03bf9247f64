package disktest

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

const (
	errNoSpace = syscall.ENOSPC
	errIO      = syscall.EIO
)

// faults are the failures scheduled on a Crashable. A counter set to n makes
// the nth operation from now fail, once.
type faults struct {
	cutting    bool
	cutAfter   int
	cut        bool
	syncIn     int
	syncErr    error
	writeIn    int
	writeShort int
	writeErr   error
	limited    bool
	limit      int64
	unreadable []badRange
}

// badRange is a range of a file that cannot be read.
type badRange struct {
	node     *inode
	from, to int64
}

// step counts a modifying operation and reports whether the power is off.
func (f *faults) step() bool {
	if f.cut {
		return true
	}
	if f.cutting {
		if f.cutAfter--; f.cutAfter < 0 {
			f.cut = true
		}
	}
	return f.cut
}

func (f *faults) sync() error {
	if f.syncIn == 0 {
		return nil
	}
	if f.syncIn--; f.syncIn > 0 {
		return nil
	}
	return f.syncErr
}

func (f *faults) write() (short int, err error) {
	if f.writeIn == 0 {
		return 0, nil
	}
	if f.writeIn--; f.writeIn > 0 {
		return 0, nil
	}
	return f.writeShort, f.writeErr
}

func (f *faults) read(node *inode, offset int64, length int) error {
	for _, r := range f.unreadable {
		if r.node == node && offset < r.to && r.from < offset+int64(length) {
			return errIO
		}
	}
	return nil
}

// CutAfter lets n more modifying operations succeed (create, write, sync,
// rename, remove, truncate). The power fails during the next operation, and
// every operation returns ErrPowerCut until Crash.
func (c *Crashable) CutAfter(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults.cutting, c.faults.cutAfter = true, n
}

// FailSync makes the nth sync of a file or directory from now fail with err; n
// starts at 1.
func (c *Crashable) FailSync(n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults.syncIn, c.faults.syncErr = n, err
}

// FailWrite makes the nth write from now fail with err after short bytes; n
// starts at 1.
func (c *Crashable) FailWrite(n, short int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults.writeIn, c.faults.writeShort, c.faults.writeErr = n, short, err
}

// LimitSpace limits the disk to size bytes: operations that would grow its
// files further return ENOSPC. Overwriting needs no space. A negative size
// removes the limit.
func (c *Crashable) LimitSpace(size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults.limited, c.faults.limit = size >= 0, size
}

// FailRead makes every read that overlaps length bytes at offset of the file
// fail with EIO.
func (c *Crashable) FailRead(name string, offset, length int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.live[filepath.Clean(name)]
	if n == nil {
		return pathError("fail read", name, fs.ErrNotExist)
	}
	c.faults.unreadable = append(c.faults.unreadable, badRange{n, offset, offset + length})
	return nil
}

// Corrupt flips the bits of mask in the byte at offset of a file, in both
// views.
func (c *Crashable) Corrupt(name string, offset int64, mask byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.live[filepath.Clean(name)]
	if n == nil {
		return pathError("corrupt", name, fs.ErrNotExist)
	}
	if offset < 0 || offset >= int64(len(n.live)) {
		return pathError("corrupt", name, fmt.Errorf("offset %d is outside the file's %d bytes", offset, len(n.live)))
	}
	n.live[offset] ^= mask
	if offset < int64(len(n.platter)) {
		n.platter[offset] ^= mask
	}
	return nil
}
