package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"github.com/hostd/hostd/journal/disk"
)

// Open opens the log in dir, and creates both if they do not exist. It reads
// and verifies every record that was not released, truncates a torn tail, and
// syncs the rest, so that everything Replay returns is durable. Damage is
// reported as a *DamageError and leaves the directory unchanged. Any other
// error comes from the disk or the options. The caller must ensure that a
// directory has at most one open Log.
//
// # Recovery
//
// Problem: after a crash the last segment ends with bytes in an unknown state.
// A record there may be torn, because the crash interrupted its write, or
// damaged, because the disk lost bytes that were synced and acknowledged. A
// torn record is normal and must be truncated. A damaged record must stop the
// node, because truncating it would silently lose acknowledged data.
//
// Approach: three facts on disk distinguish torn from damaged records.
//
//   - The mark file records a position up to which the log was synced. An
//     invalid record before the mark is damage.
//   - Each record stores the offset up to which its segment was synced when the
//     record was encoded. If a valid record after the first invalid record
//     shows that the invalid record's offset was synced, the invalid record is
//     damage.
//   - Each segment header stores where the previous segment ended, and is
//     written only after that segment was synced. All segments except the last
//     must be complete.
//
// Otherwise the log ends at the last valid record:
//
//	mark file ─▶ segment headers ─▶ sealed segments ─▶ last segment ─▶ take over ─▶ tidy
//	    │              │                  │                 │
//	    └──────────────┴──── damage ──────┴─────────────────┘──▶ *DamageError, nothing written
//
// Invariant: records after the tail never become valid again. Open starts a new
// epoch at the tail, which seeds all checksums, so leftovers of an earlier
// epoch do not verify.
//
// Rejected: treating any invalid record in the last segment as the end of the
// log, as most logs do. A single flipped bit would then drop acknowledged
// records without an error.
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
	// An earlier process may have failed to sync the directory, so its names may
	// not be durable.
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
			return newDamage(markName, 0, "missing, though there are segments")
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
		file:       file,
		id:         id,
		current:    m,
		nextSlot:   turn,
		syncedAt:   l.opts.Now(),
		lastSynced: data[(1-turn)*markSlotBytes:][:markBytes],
		syncs:      &l.counters.markSyncs,
	}
	return nil
}

func loadMark(fsys disk.FS, path string) ([]byte, error) {
	data, err := disk.ReadFile(fsys, path)
	if err != nil {
		return nil, newReadFailure(markName, 0, err)
	}
	if len(data) != markFileBytes {
		return nil, newDamage(markName, 0, "the file has %d bytes instead of %d", len(data), markFileBytes)
	}
	return data, nil
}

// begin creates the first segment of a new log.
func (l *Log) begin() error {
	if err := l.mark.rewriteSynced(); err != nil {
		return err
	}
	c, coder, next, err := l.newSegment()
	if err != nil {
		return err
	}
	l.pending, l.coder, l.next = []chunk{c}, coder, next
	return l.writePending()
}

// recover verifies all segments, finds the tail and takes the log over.
//
// Problem: after a crash the log ends in bytes that were being written, and they
// look like damage. If recovery took damage for such a torn tail, it would drop
// records whose votes and events were already acknowledged. If it took a torn
// tail for damage, a node would not start after a power cut.
//
// Approach: the end of every segment but the last is known, because the next
// segment's header has it, so invalid bytes there are damage. In the last
// segment the mark decides. It is written after each sync, before anything is
// acknowledged, and has the synced position with the epoch and checksum of the
// record that ends there. Invalid bytes before the mark are damage. After it
// they are a torn tail, unless a later record was written when these bytes had
// already been synced, which the record says of itself: the mark is synced only
// once a second, so after a power cut it may be older than the last sync.
//
// A segment's file is recycled, and so is its content. The checksum of a record
// is therefore seeded with log, segment, epoch and offset. takeOver writes the
// records after the mark again and begins a new epoch behind them, after which
// nothing that was left beyond the tail can become valid.
//
// Invariant: every record before the mark is before the tail, or recover returns a
// *DamageError that names the file and the offset. If only the process crashed,
// these are all acknowledged records. After a power cut the mark may be a second
// old, and damage to newer records is found only by records after them. recover
// repairs nothing: the node either comes back under new replica ids, or an
// operator accepts the loss.
//
// Rejected: ending at the first invalid record, which loses acknowledged records
// silently; and clearing the rest of a segment before its first use, which writes
// every segment twice.
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
	l.log.Info("opened the write-ahead log", slog.Int("segments", len(headers)), slog.String("tail", r.next.String()),
		slog.String("mark", l.mark.current.position.String()), slog.String("tail_reason", reason))
	return l.takeOver(r)
}

// takeOver makes the records read by r durable and starts a new epoch after
// them.
//
// Records after the mark are written again before they are synced. If an
// earlier process failed to sync them, the operating system may consider their
// pages clean, and a sync alone would not write them. The new epoch permanently
// invalidates everything after the tail.
func (l *Log) takeOver(r *reader) error {
	if err := l.mark.rewriteSynced(); err != nil {
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

// tidy recycles or removes files that the log no longer needs.
func (l *Log) tidy(names listing) error {
	for _, name := range names.temps {
		// The temporary file may have been renamed since the directory was
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
