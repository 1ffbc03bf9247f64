package disktest

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"

	"github.com/hostd/hostd/journal/disk"
)

// sectorBytes is the unit that a drive writes atomically.
const sectorBytes = 512

// inode is the content of a file in both views, and the changes between them.
type inode struct {
	number  int
	live    []byte
	platter []byte
	changes []change
}

// change is an unsynced write of data at offset, or an unsynced change of
// length if data is nil.
type change struct {
	offset int64
	data   []byte
	length int64
}

func (n *inode) resize(length int64) {
	n.live = withLength(n.live, length)
	n.changes = append(n.changes, change{length: length})
}

// write records p as unsynced. It copies the bytes.
func (n *inode) write(p []byte, offset int64) {
	if end := offset + int64(len(p)); end > int64(len(n.live)) {
		n.live = withLength(n.live, end)
	}
	copy(n.live[offset:], p)
	n.changes = append(n.changes, change{offset: offset, data: append(make([]byte, 0, len(p)), p...)})
}

// apply applies a change to the platter.
func (n *inode) apply(ch change) {
	if ch.data == nil {
		n.platter = withLength(n.platter, ch.length)
		return
	}
	if end := ch.offset + int64(len(ch.data)); end > int64(len(n.platter)) {
		n.platter = withLength(n.platter, end)
	}
	copy(n.platter[ch.offset:], ch.data)
}

func (n *inode) sync() {
	for _, ch := range n.changes {
		n.apply(ch)
	}
	n.changes = n.changes[:0]
}

// crash keeps each unsynced sector with the given probability, tears the last
// write if asked to, and loses the rest.
func (n *inode) crash(rng *rand.Rand, keep float64, tear bool) {
	n.discardUnsynced(rng, keep, tear)
	n.live = append([]byte(nil), n.platter...)
}

// discardUnsynced applies some of the unsynced changes, drops the other
// changes, and treats all of them as synced.
func (n *inode) discardUnsynced(rng *rand.Rand, keep float64, tear bool) {
	for i, ch := range n.changes {
		switch {
		case ch.data == nil:
			if rng.Float64() < keep {
				n.apply(ch)
			}
		case tear && i == len(n.changes)-1 && rng.IntN(2) == 0:
			n.apply(change{offset: ch.offset, data: ch.data[:rng.IntN(len(ch.data)+1)]})
		default:
			n.applySectors(rng, keep, ch)
		}
	}
	n.changes = nil
}

func (n *inode) applySectors(rng *rand.Rand, keep float64, ch change) {
	for from := int64(0); from < int64(len(ch.data)); {
		size := min(sectorBytes-(ch.offset+from)%sectorBytes, int64(len(ch.data))-from)
		if rng.Float64() < keep {
			n.apply(change{offset: ch.offset + from, data: ch.data[from : from+size]})
		}
		from += size
	}
}

// withLength returns b with the given length, padded with zeros.
func withLength(b []byte, length int64) []byte {
	if length <= int64(len(b)) {
		return b[:length:length]
	}
	grown := make([]byte, length)
	copy(grown, b)
	return grown
}

// crashableFile is an open file of a Crashable. It is invalid after a power
// cut.
type crashableFile struct {
	disk       *Crashable
	node       *inode
	name       string
	access     disk.Access
	generation int
}

// check returns an error if the file may not be used. The caller holds the
// disk's lock.
func (f *crashableFile) check(op string) error {
	switch {
	case f.disk.faults.cut:
		return pathError(op, f.name, ErrPowerCut)
	case f.generation != f.disk.generation:
		return pathError(op, f.name, fmt.Errorf("opened before the crash: %w", fs.ErrClosed))
	default:
		return nil
	}
}

// ReadAt implements File.
func (f *crashableFile) ReadAt(p []byte, offset int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.check("read"); err != nil {
		return 0, err
	}
	if offset < 0 {
		return 0, pathError("read", f.name, fs.ErrInvalid)
	}
	if err := f.disk.faults.read(f.node, offset, len(p)); err != nil {
		return 0, pathError("read", f.name, err)
	}
	if offset >= int64(len(f.node.live)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.live[offset:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt implements File.
func (f *crashableFile) WriteAt(p []byte, offset int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.checkWritable("write"); err != nil {
		return 0, err
	}
	if offset < 0 {
		return 0, pathError("write", f.name, fs.ErrInvalid)
	}
	n, err := len(p), error(nil)
	if growth := offset + int64(len(p)) - int64(len(f.node.live)); growth > 0 && f.disk.faults.limited {
		if free := f.disk.faults.limit - f.disk.usedBytes(); growth > free {
			n, err = max(0, len(p)-int(growth-max(0, free))), errNoSpace
		}
	}
	if short, fault := f.disk.faults.write(); fault != nil {
		n, err = min(n, short), fault
	}
	// A write that is interrupted by the power cut counts as written: Crash
	// decides how much of the write survives.
	if f.disk.faults.step() {
		err = ErrPowerCut
	}
	if n > 0 {
		f.node.write(p[:n], offset)
		f.disk.lastWrite = f.node
	}
	if err != nil {
		return n, pathError("write", f.name, err)
	}
	return n, nil
}

// Sync implements File. A failed Sync leaves the unsynced writes visible to the
// process and marked clean, as Linux does: these writes reach the platter in
// part or not at all, and a later Sync does not write them.
func (f *crashableFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.check("sync"); err != nil {
		return err
	}
	if f.disk.faults.step() {
		return pathError("sync", f.name, ErrPowerCut)
	}
	if err := f.disk.faults.sync(); err != nil {
		f.node.discardUnsynced(f.disk.rng, f.disk.drawSurvival(), false)
		return pathError("sync", f.name, err)
	}
	f.node.sync()
	return nil
}

// Truncate implements File.
func (f *crashableFile) Truncate(size int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.checkWritable("truncate"); err != nil {
		return err
	}
	if f.disk.faults.step() {
		return pathError("truncate", f.name, ErrPowerCut)
	}
	if growth := size - int64(len(f.node.live)); f.disk.faults.limited && f.disk.usedBytes()+growth > f.disk.faults.limit && growth > 0 {
		return pathError("truncate", f.name, errNoSpace)
	}
	f.node.resize(size)
	return nil
}

func (f *crashableFile) checkWritable(op string) error {
	if err := f.check(op); err != nil {
		return err
	}
	if f.access != disk.ReadWrite {
		return pathError(op, f.name, fs.ErrPermission)
	}
	return nil
}

// Size implements File.
func (f *crashableFile) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if err := f.check("stat"); err != nil {
		return 0, err
	}
	return int64(len(f.node.live)), nil
}

// Close implements File.
func (f *crashableFile) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.generation = -1
	return nil
}
