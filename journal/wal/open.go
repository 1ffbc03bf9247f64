package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/hostd/hostd/journal/disk"
)

// Open opens the log in dir, and makes both if they do not exist. It reads and
// checks every record that was not released, cuts a torn tail off, and syncs
// what it keeps, so that all that Replay yields is durable. Damage gives a
// *DamageError and leaves the directory as it was; any other error is the
// disk's or that of the options. The caller sees to it that a directory has one
// Log.
func Open(fsys disk.FS, dir string, opts Options) (*Log, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("open write-ahead log: %w", err)
	}
	l := &Log{fs: fsys, dir: dir, opts: opts.withDefaults()}
	l.log = l.opts.Logger
	if err := l.open(); err != nil {
		l.closeFiles()
		return nil, fmt.Errorf("open write-ahead log: %w", err)
	}
	return l, nil
}

func (l *Log) open() error {
	if err := l.fs.MkdirAll(l.dir); err != nil {
		return err
	}
	names, err := list(l.fs, l.dir)
	if err != nil {
		return err
	}
	// A process that failed to sync the directory may have left names that are not
	// durable.
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	if err := l.openMark(names); err != nil {
		return err
	}
	if len(names.segments) == 0 && l.mark.current.position.Segment == 0 {
		err = l.begin()
	} else {
		err = l.recover(names)
	}
	if err != nil {
		return err
	}
	return l.tidy(names)
}

func (l *Log) openMark(names listing) error {
	path := filepath.Join(l.dir, markName)
	if !names.mark {
		if len(names.segments)+len(names.free) > 0 {
			return damaged(markName, 0, "missing, though there are segments")
		}
		var id LogID
		littleEndian.PutUint64(id[:], l.opts.Rand())
		littleEndian.PutUint64(id[8:], l.opts.Rand())
		if err := createMark(l.fs, path, id, mark{sequence: 1, first: 1}); err != nil {
			return err
		}
	}
	data, err := loadMark(l.fs, path)
	if err != nil {
		return err
	}
	m, id, turn, err := readMark(data)
	if err != nil {
		return err
	}
	file, err := l.fs.OpenFile(path, disk.ReadWrite)
	if err != nil {
		return err
	}
	l.id = id
	l.mark = &markFile{
		file:     file,
		id:       id,
		current:  m,
		turn:     turn,
		syncedAt: l.opts.Now(),
		settled:  data[(1-turn)*markSlotBytes:][:markBytes],
		syncs:    &l.counters.markSyncs,
	}
	return nil
}

func loadMark(fsys disk.FS, path string) ([]byte, error) {
	data, err := disk.ReadFile(fsys, path)
	if err != nil {
		return nil, unreadable(markName, 0, err)
	}
	if len(data) != markFileBytes {
		return nil, damaged(markName, 0, "has %d bytes instead of %d", len(data), markFileBytes)
	}
	return data, nil
}

// begin makes the first segment of a new log.
func (l *Log) begin() error {
	if err := l.mark.settle(); err != nil {
		return err
	}
	c, coder, next, err := l.newSegment()
	if err != nil {
		return err
	}
	l.pending, l.coder, l.next = []chunk{c}, coder, next
	return l.writePending()
}

// recover checks all segments, finds the tail and takes the log over.
func (l *Log) recover(names listing) error {
	headers, err := loadHeaders(l.fs, l.dir, l.id, names.segments, l.mark.current)
	if err != nil {
		return err
	}
	last := len(headers) - 1
	for i, h := range headers[:last] {
		end := headers[i+1].previousEnd
		if err := checkSealed(l.fs, l.dir, h, headers[i+1], nil); err != nil {
			return err
		}
		l.segments = append(l.segments, segment{h.number, h.size, end})
	}
	h := headers[last]
	if l.file, err = l.fs.OpenFile(filepath.Join(l.dir, segmentName(h.number)), disk.ReadWrite); err != nil {
		return err
	}
	r := newReader(l.file, h, h.size)
	reason, err := findTail(r, l.mark.current, nil)
	if err != nil {
		return err
	}
	l.segments = append(l.segments, segment{h.number, h.size, r.next.Offset})
	l.log.Info("write-ahead log opened", slog.Int("segments", len(headers)), slog.String("tail", r.next.String()),
		slog.String("mark", l.mark.current.position.String()), slog.String("tail_reason", reason))
	return l.takeOver(r)
}

// takeOver makes what r found durable and starts a new epoch behind it.
//
// Records above the mark are written again before they are synced: if an
// earlier process failed to sync them, the operating system may hold them in
// memory as clean, and a sync alone would not write them. The new epoch makes
// whatever stands behind the tail unreadable for good.
func (l *Log) takeOver(r *reader) error {
	if err := l.mark.settle(); err != nil {
		return err
	}
	from, synced := int64(headerBytes), int64(0)
	if p := l.mark.current.position; p.Segment == r.next.Segment {
		from, synced = p.Offset, p.Offset
	}
	for tail := r.next.Offset; from < tail; {
		b, err := r.window.peek(from, int(min(windowBytes, tail-from)))
		if err != nil {
			return err
		}
		if _, err := l.file.WriteAt(b, from); err != nil {
			return err
		}
		from += int64(len(b))
	}
	l.next, l.coder, l.lastCRC = r.next, r.coder, r.lastCRC
	if l.full = r.limit-l.next.Offset < epochRecordBytes; !l.full {
		epoch := l.coder.epoch + 1
		b, crc := l.coder.appendRecord(nil, l.next.Offset, synced, epochKind, littleEndian.AppendUint64(nil, epoch))
		if _, err := l.file.WriteAt(b, l.next.Offset); err != nil {
			return err
		}
		l.coder, l.lastCRC = newCoder(l.id, l.next.Segment, epoch), crc
		l.next.Offset += int64(len(b))
		l.segments[len(l.segments)-1].end = l.next.Offset
	}
	l.pending = []chunk{{number: l.next.Segment, start: l.next.Offset}}
	if err := l.syncSegment(); err != nil {
		return err
	}
	l.durable = l.next
	return l.moveMark(true)
}

// tidy recycles or removes the files that the log no longer needs.
func (l *Log) tidy(names listing) error {
	for _, name := range names.temps {
		// What was begun before may have been finished since the directory was
		// listed.
		if err := l.fs.Remove(filepath.Join(l.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, name := range names.free {
		info, err := l.fs.Stat(filepath.Join(l.dir, name))
		if err != nil {
			return err
		}
		if info.Size == l.opts.SegmentBytes && len(l.free) < l.opts.RecycleSegments {
			l.free = append(l.free, name)
			continue
		}
		if err := l.fs.Remove(filepath.Join(l.dir, name)); err != nil {
			return err
		}
	}
	for _, number := range names.segments {
		if number >= l.segments[0].number {
			break
		}
		info, err := l.fs.Stat(filepath.Join(l.dir, segmentName(number)))
		if err != nil {
			return err
		}
		if err := l.discard(segment{number: number, size: info.Size}); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) closeFiles() {
	if l.file != nil {
		l.file.Close()
	}
	if l.mark != nil {
		l.mark.file.Close()
	}
}
