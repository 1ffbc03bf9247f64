package wal

import (
	"path/filepath"
	"time"

	"github.com/hostd/hostd/journal/disk"
)

const (
	// markInterval is the time by which the durable mark of a busy log may lag.
	markInterval = time.Second
	// keepBufferBytes is the largest buffer that is kept for the next batch.
	keepBufferBytes = 8 << 20
)

// Sync writes pending records, with one write and one sync unless a segment
// ended, and advances the mark. When it returns nil, everything appended is
// durable, and the returned position is the end of the log. Any error poisons
// the log.
func (l *Log) Sync() (Position, error) {
	if l.err != nil {
		return Position{}, l.err
	}
	if err := l.writePending(); err != nil {
		return Position{}, l.poison(err)
	}
	if l.dirty {
		if err := l.syncSegment(); err != nil {
			return Position{}, l.poison(err)
		}
		l.durable = l.next
		if err := l.moveMark(false); err != nil {
			return Position{}, l.poison(err)
		}
	}
	return l.next, nil
}

// Flush writes pending records without a sync. They survive the end of the
// process but not a power cut. Any error poisons the log.
func (l *Log) Flush() error {
	if l.err != nil {
		return l.err
	}
	if err := l.writePending(); err != nil {
		return l.poison(err)
	}
	return nil
}

// SyncMark syncs the mark if it moved since it was last synced. Sync does so
// once a second; a loop calls SyncMark when it has appended nothing for a tick,
// so that the mark of an idle log does not lag. Any error poisons the log.
func (l *Log) SyncMark() error {
	if l.err != nil {
		return l.err
	}
	if l.mark.running {
		if err := l.mark.writeDurable(l.mark.current, l.opts.Now()); err != nil {
			return l.poison(err)
		}
	}
	return nil
}

// writePending writes the pending chunks and creates the segments that do not
// exist yet.
func (l *Log) writePending() error {
	for i := range l.pending {
		c := &l.pending[i]
		if c.prologue > 0 {
			if err := l.startSegment(c); err != nil {
				return err
			}
		}
		if len(c.buf) == c.prologue {
			continue
		}
		if err := l.write(c.buf[c.prologue:], c.start+int64(c.prologue)); err != nil {
			return err
		}
		l.segments[len(l.segments)-1].end = c.start + int64(len(c.buf))
	}
	buf := l.pending[len(l.pending)-1].buf
	if first := l.pending[0].buf; cap(first) > cap(buf) {
		buf = first
	}
	if cap(buf) > keepBufferBytes {
		buf = nil
	}
	clear(l.pending)
	l.pending = append(l.pending[:0], chunk{number: l.next.Segment, start: l.next.Offset, buf: buf[:0]})
	return nil
}

func (l *Log) write(b []byte, offset int64) error {
	if _, err := l.file.WriteAt(b, offset); err != nil {
		return err
	}
	l.dirty = true
	l.counters.writes.Add(1)
	l.counters.writtenBytes.Add(uint64(len(b)))
	return nil
}

func (l *Log) syncSegment() error {
	start := l.opts.Now()
	if err := l.file.Sync(); err != nil {
		return err
	}
	l.dirty = false
	l.counters.syncs.Add(1)
	if l.opts.ObserveSync != nil {
		l.opts.ObserveSync(l.opts.Now().Sub(start))
	}
	return nil
}

// moveMark advances the mark to l.durable, which l.next, l.coder and l.lastCRC
// must match. It syncs the mark if durably is set or a sync is due.
func (l *Log) moveMark(durably bool) error {
	m := mark{position: l.durable, epoch: l.coder.epoch, first: l.segments[0].number, lastCRC: l.lastCRC}
	now := l.opts.Now()
	if durably || now.Sub(l.mark.syncedAt) >= markInterval {
		return l.mark.writeDurable(m, now)
	}
	return l.mark.writeRunning(m)
}

// startSegment syncs the last segment and creates the segment of c after it.
// The new file gets its name only when its header and checkpoint are durable,
// and receives records only when its name is durable. A segment with its final
// name therefore has at least its header and checkpoint, and an abandoned
// temporary file contains no record except the checkpoint.
func (l *Log) startSegment(c *chunk) error {
	if l.dirty {
		if err := l.syncSegment(); err != nil {
			return err
		}
	}
	if err := l.makeSegment(c); err != nil {
		return err
	}
	l.segments = append(l.segments, segment{c.number, l.opts.SegmentBytes, int64(c.prologue)})
	l.durable = Position{c.number, int64(c.prologue)}
	m := mark{position: l.durable, epoch: c.epoch, first: l.segments[0].number, lastCRC: c.prologueCRC}
	return l.mark.writeDurable(m, l.opts.Now())
}

// makeSegment replaces l.file by a new segment that contains the header page
// and the checkpoint of c. The file is closed while it is renamed, because not
// every system can rename an open file.
func (l *Log) makeSegment(c *chunk) error {
	file, name, err := l.segmentFile(c.number)
	if err != nil {
		return err
	}
	if l.file != nil {
		l.file.Close()
	}
	l.file = file
	if err := l.write(c.buf[:c.prologue], 0); err != nil {
		return err
	}
	if err := l.syncSegment(); err != nil {
		return err
	}
	if err := l.file.Close(); err != nil {
		return err
	}
	path := filepath.Join(l.dir, segmentName(c.number))
	if err := l.fs.Rename(filepath.Join(l.dir, name), path); err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	file, err = l.fs.OpenFile(path, disk.ReadWrite)
	if err != nil {
		return err
	}
	l.file = file
	return nil
}

// segmentFile returns a file for segment number and the file's temporary name.
func (l *Log) segmentFile(number uint64) (file disk.File, name string, err error) {
	if len(l.free) > 0 {
		name, l.free = l.free[0], l.free[1:]
		l.counters.recycled.Add(1)
		file, err = l.fs.OpenFile(filepath.Join(l.dir, name), disk.ReadWrite)
		return file, name, err
	}
	name = segmentName(number) + tempSuffix
	l.counters.created.Add(1)
	file, err = l.fs.Create(filepath.Join(l.dir, name), l.opts.SegmentBytes)
	return file, name, err
}
