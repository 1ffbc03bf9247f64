package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/hostd/hostd/journal/disk"
)

// Loss describes the effect of AcceptLoss.
type Loss struct {
	// Damage is the first damage found.
	Damage *DamageError
	// Kept is where the log ends now; segment 0 if nothing could be kept.
	Kept Position
	// SetAside are the files that were renamed or copied, by their new names.
	SetAside []string
}

const lostSuffix = ".lost"

// AcceptLoss truncates a damaged log at its first damage, so that Open accepts
// the part before the damage. The node loses the acknowledged records after the
// damage. An operator should therefore decide this, and only if this node
// cannot be rebuilt from other nodes. The original files are kept under names
// that end in .lost, as far as they can be read. AcceptLoss returns nil for a
// log without damage, which it does not change. After an error it can be called
// again.
func AcceptLoss(fsys disk.FS, dir string) (*Loss, error) {
	c := lossAcceptor{fs: fsys, dir: dir}
	loss, err := c.run()
	if err != nil {
		return nil, fmt.Errorf("accept loss in write-ahead log: %w", err)
	}
	return loss, nil
}

// lossAcceptor finds the end of the intact part of a damaged log and truncates the
// log there.
type lossAcceptor struct {
	fs   disk.FS
	dir  string
	id   LogID
	mark mark
	// kept is the mark of the intact part.
	kept mark
	loss Loss
}

func (c *lossAcceptor) run() (*Loss, error) {
	names, err := list(c.fs, c.dir)
	if err != nil {
		return nil, err
	}
	if !names.mark && len(names.segments)+len(names.free) == 0 {
		return nil, nil
	}
	if err := c.readMark(names); err != nil {
		return nil, err
	}
	if err := c.findEnd(names); err != nil {
		return nil, err
	}
	if c.loss.Damage == nil {
		return nil, nil
	}
	c.loss.Kept = c.kept.position
	return &c.loss, c.truncate(names)
}

// note records the first damage; any other error is returned.
func (c *lossAcceptor) note(err error) error {
	var damage *DamageError
	if err != nil && !errors.As(err, &damage) {
		return err
	}
	if c.loss.Damage == nil {
		c.loss.Damage = damage
	}
	return nil
}

func (c *lossAcceptor) readMark(names listing) error {
	if !names.mark {
		c.loss.Damage = newDamage(markName, 0, "missing, though there are segments")
	} else if data, err := loadMark(c.fs, filepath.Join(c.dir, markName)); err != nil {
		if err := c.note(err); err != nil {
			return err
		}
	} else if c.mark, c.id, _, err = readMark(data); err != nil {
		if err := c.note(err); err != nil {
			return err
		}
	}
	if c.loss.Damage != nil && len(names.segments) > 0 {
		c.id = peekID(c.fs, filepath.Join(c.dir, segmentName(names.segments[0])))
		c.mark = mark{first: names.segments[0]}
	}
	return nil
}

// findEnd walks the segments up to the first damage and stores the end of the
// intact part in kept.
func (c *lossAcceptor) findEnd(names listing) error {
	if len(names.segments) == 0 && c.mark.position.Segment == 0 {
		return nil
	}
	headers, err := loadHeaders(c.fs, c.dir, c.id, names.segments, c.mark)
	if blamed := (*DamageError)(nil); errors.As(err, &blamed) && blamed.File == markName {
		// Segments that the lost mark recorded as released are no loss. The log
		// starts with the first existing segment.
		if err := c.note(err); err != nil {
			return err
		}
		from, _ := slices.BinarySearch(names.segments, c.mark.first)
		c.mark = mark{first: names.segments[from], sequence: c.mark.sequence}
		headers, err = loadHeaders(c.fs, c.dir, c.id, names.segments, c.mark)
	}
	if err := c.note(err); err != nil {
		return err
	}
	c.kept.first = c.mark.first
	for i, h := range headers {
		whole := false
		if i+1 < len(headers) {
			err := checkSealed(c.fs, c.dir, h, headers[i+1], nil)
			if err := c.note(err); err != nil {
				return err
			}
			whole = err == nil
		}
		if whole {
			continue
		}
		return c.readTail(h)
	}
	return nil
}

// readTail makes the last valid record of a segment the end of the log.
func (c *lossAcceptor) readTail(h segmentHeader) error {
	name := segmentName(h.number)
	file, err := c.fs.OpenFile(filepath.Join(c.dir, name), disk.ReadOnly)
	if err != nil {
		return err
	}
	defer file.Close()
	if c.loss.Damage == nil {
		_, err := findTail(newReader(file, h, h.size), c.mark, nil)
		if err := c.note(err); err != nil {
			return err
		}
	}
	r := newReader(file, h, h.size)
	for reason := ""; reason == "" && err == nil; {
		_, reason, err = r.read()
	}
	c.kept.position, c.kept.epoch, c.kept.lastCRC = r.next, r.coder.epoch, r.lastCRC
	return nil
}

// truncate sets the files after the damage aside, and then writes the mark that
// makes the rest a valid log again.
func (c *lossAcceptor) truncate(names listing) error {
	for _, number := range names.segments {
		if number >= c.mark.first && number > c.kept.position.Segment {
			if err := c.setAside(segmentName(number)); err != nil {
				return err
			}
		}
	}
	if c.kept.position.Segment == 0 {
		return c.startOver(names)
	}
	if err := c.copyTail(); err != nil {
		return err
	}
	if err := c.fs.SyncDir(c.dir); err != nil {
		return err
	}
	c.kept.sequence, c.kept.final = c.mark.sequence+1, true
	return createMark(c.fs, filepath.Join(c.dir, markName), c.id, c.kept)
}

// copyTail replaces the last segment by a copy of its intact part, followed by
// zeros. The bytes after the damage must not survive, because the log continues
// from an earlier epoch and may reuse the epochs of those bytes.
func (c *lossAcceptor) copyTail() error {
	name := segmentName(c.kept.position.Segment)
	path := filepath.Join(c.dir, name)
	info, err := c.fs.Stat(path)
	if err != nil {
		return err
	}
	if data, err := disk.ReadFile(c.fs, path); err == nil {
		if err := disk.WriteFileAtomic(c.fs, path+lostSuffix, data); err != nil {
			return err
		}
		c.loss.SetAside = append(c.loss.SetAside, name+lostSuffix)
	}
	file, err := c.fs.OpenFile(path, disk.ReadOnly)
	if err != nil {
		return err
	}
	defer file.Close()
	whole := make([]byte, info.Size)
	if _, err := file.ReadAt(whole[:c.kept.position.Offset], 0); err != nil {
		return err
	}
	return disk.WriteFileAtomic(c.fs, path, whole)
}

// startOver sets aside everything that the next Open would accept as a log.
func (c *lossAcceptor) startOver(names listing) error {
	for _, number := range names.segments {
		if number < c.mark.first {
			if err := c.setAside(segmentName(number)); err != nil {
				return err
			}
		}
	}
	for _, name := range names.free {
		if err := c.fs.Remove(filepath.Join(c.dir, name)); err != nil {
			return err
		}
	}
	if names.mark {
		if err := c.setAside(markName); err != nil {
			return err
		}
	}
	return c.fs.SyncDir(c.dir)
}

func (c *lossAcceptor) setAside(name string) error {
	path := filepath.Join(c.dir, name)
	if err := c.fs.Rename(path, path+lostSuffix); err != nil {
		return err
	}
	c.loss.SetAside = append(c.loss.SetAside, name+lostSuffix)
	return nil
}
