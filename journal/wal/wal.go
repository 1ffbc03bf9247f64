// Package wal is the single write-ahead log of a node. It stores opaque records
// of all its raft groups in a sequence of segment files, with one positioned
// write and one sync per turn of the ready loop. FORMAT.md describes its bytes.
//
// It never interprets a record, never retries a failed write or sync, and never
// skips damage. Either all acknowledged records are replayed in order, or Open
// names the file that lost records. It starts no goroutine and needs no lock. A
// Log belongs to the goroutine of the ready loop; only Stats may be called from
// other goroutines.
package wal

import (
	"fmt"
	"log/slog"

	"github.com/hostd/hostd/journal/disk"
)

// CheckpointKind is the kind of the checkpoint records that the function passed
// to SetCheckpoint writes at the start of a segment. Kind 0 is reserved for the
// log itself; callers use CheckpointKind and above.
const CheckpointKind byte = 1

// Position is a position in the log: the start of a record, or the end of the
// last record.
type Position struct {
	// Segment is the number of a segment. Numbers start at 1 and are never
	// reused.
	Segment uint64
	// Offset is the offset in the segment's file, in bytes.
	Offset int64
}

// Less reports whether p comes before q.
func (p Position) Less(q Position) bool {
	return p.Segment < q.Segment || p.Segment == q.Segment && p.Offset < q.Offset
}

// String returns the position as segment:offset, for logs.
func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Segment, p.Offset) }

// SegmentInfo describes a segment file of the log.
type SegmentInfo struct {
	// Number is the segment's number.
	Number uint64
	// Bytes is the length of its file.
	Bytes int64
	// End is the offset after its last record; for the last segment, after the
	// last record written to the file.
	End int64
}

// Log is an open write-ahead log. A record is only in memory between Append and
// Sync.
//
//	Open ──▶ [Replay] ──▶ Append* ──▶ Sync | Flush ──▶ Append* … ──▶ Close
//	             any failed write or sync ──▶ poisoned: every later call returns ErrPoisoned
type Log struct {
	fs         disk.FS
	dir        string
	opts       Options
	log        *slog.Logger
	id         LogID
	checkpoint func(dst []byte) []byte

	segments []segment // on disk, oldest first; file is the last segment
	file     disk.File
	free     []string // names of files that can be recycled
	mark     *markFile

	// next is the position of the next record, and coder encodes the records of
	// its segment. While records are pending, that segment may not exist yet.
	next    Position
	coder   coder
	lastCRC uint32
	// full means that the last segment accepts no further record, even if a
	// small one would fit.
	full    bool
	pending []chunk
	// durable is the position after the last synced record.
	durable     Position
	dirty       bool // bytes were written but not synced
	hasAppended bool // Append was called
	err         error

	counters counters
}

// segment is a segment file on disk.
type segment struct {
	number uint64
	size   int64
	end    int64
}

// chunk is the pending data of one segment.
type chunk struct {
	number uint64
	// start is the offset of buf in the segment.
	start int64
	buf   []byte
	// The remaining fields are for a segment that does not exist yet: its
	// epoch, the length of the header page and checkpoint at the start of buf,
	// and the checksum of the checkpoint.
	epoch       uint64
	prologue    int
	prologueCRC uint32
}

// Tail returns the position of the next record, after everything appended.
func (l *Log) Tail() Position { return l.next }

// ID returns the random id that the log got when it was created. All its files
// contain it.
func (l *Log) ID() LogID { return l.id }

// Segments describes the segment files on disk, oldest first. The last segment
// is active.
func (l *Log) Segments() []SegmentInfo {
	infos := make([]SegmentInfo, len(l.segments))
	for i, s := range l.segments {
		infos[i] = SegmentInfo{Number: s.number, Bytes: s.size, End: s.end}
	}
	return infos
}

// SetCheckpoint sets the checkpoint function. The function appends to dst the
// state that a reader needs if the log starts at the new segment, and returns
// the extended slice. Append calls the function when a record no longer fits
// into the segment. The checkpoint must describe the state after all records
// appended before that record. Its bytes become the first record of the new
// segment, and are synced before Release may free an older segment. Without a
// function, segments start without a checkpoint.
func (l *Log) SetCheckpoint(fn func(dst []byte) []byte) { l.checkpoint = fn }

// poison ends the log. It is unknown what a failed write or sync left on disk,
// and a retry may report success without having written the data.
func (l *Log) poison(err error) error {
	l.err = fmt.Errorf("%w: %w", ErrPoisoned, err)
	return l.err
}

// Close syncs pending records, marks the log as cleanly closed and closes its
// files. On a poisoned log it closes the files and returns the error that
// poisoned it.
func (l *Log) Close() error {
	if l.file == nil {
		return nil
	}
	err := l.err
	if err == nil {
		if _, err = l.Sync(); err == nil {
			err = l.closeMark()
		}
	}
	l.file.Close()
	l.mark.file.Close()
	l.file = nil
	l.err = ErrClosed
	return err
}

func (l *Log) closeMark() error {
	m := l.mark.current
	m.final = true
	if err := l.mark.writeDurable(m, l.opts.Now()); err != nil {
		return l.poison(err)
	}
	return nil
}
