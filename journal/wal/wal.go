// Package wal is the one write-ahead log of a node: opaque records of all its
// raft groups in a row of segment files, written with one positioned write and
// made durable with one sync for each turn of the ready loop. FORMAT.md has its
// bytes.
//
// It never interprets a record, never retries a failed write or sync, never
// skips damage: what was acknowledged is replayed whole and in order, or Open
// says which file lost it. It starts no goroutine and takes no lock; a Log
// belongs to the goroutine of the ready loop, only Stats may be called from
// others.
package wal

import (
	"fmt"
	"log/slog"

	"github.com/hostd/hostd/journal/disk"
)

// CheckpointKind is the kind of the record that the function given to
// SetCheckpoint writes at the head of a segment. Kind 0 is the log's own;
// callers use CheckpointKind and above.
const CheckpointKind byte = 1

// Position is a place in the log: the start of a record, or the end of the last
// one.
type Position struct {
	// Segment is the number of a segment, counted from 1 and never reused.
	Segment uint64
	// Offset is in bytes from the start of the segment's file.
	Offset int64
}

// Less reports whether p comes before q.
func (p Position) Less(q Position) bool {
	return p.Segment < q.Segment || p.Segment == q.Segment && p.Offset < q.Offset
}

// String is for logs.
func (p Position) String() string { return fmt.Sprintf("%d:%d", p.Segment, p.Offset) }

// SegmentInfo describes a segment file that the log holds.
type SegmentInfo struct {
	// Number is the segment's number.
	Number uint64
	// Bytes is the length of its file.
	Bytes int64
	// End is the offset behind its last record, for the last segment as far as it
	// was written.
	End int64
}

// Log is an open write-ahead log. Between Append and Sync a record is in memory
// only.
//
//	Open ──▶ [Replay] ──▶ Append* ──▶ Sync | Flush ──▶ Append* … ──▶ Close
//	             any failed write or sync ──▶ poisoned: every call returns ErrPoisoned, for ever
type Log struct {
	fs         disk.FS
	dir        string
	opts       Options
	log        *slog.Logger
	id         LogID
	checkpoint func(dst []byte) []byte

	segments []segment // on disk, oldest first; file is the last
	file     disk.File
	free     []string // names of files to recycle
	mark     *markFile

	// next is where the next record goes, under the coder of that segment. Behind
	// what is pending it may lie in a segment that does not exist yet.
	next    Position
	coder   coder
	lastCRC uint32
	// full says that the last segment takes no further record although it has room
	// for a small one.
	full    bool
	pending []chunk
	// durable is behind the last synced record.
	durable Position
	dirty   bool // written and not synced
	used    bool // Append was called
	err     error

	counters counters
}

// segment is a segment file as found or made.
type segment struct {
	number uint64
	size   int64
	end    int64
}

// chunk is what is pending for one segment.
type chunk struct {
	number uint64
	// start is the offset of buf in the segment.
	start int64
	buf   []byte
	// The rest is for a segment that is still to be made: its epoch, the length of
	// the header page and checkpoint at the head of buf, and the checksum of the
	// checkpoint.
	epoch       uint64
	prologue    int
	prologueCRC uint32
}

// Tail returns the position of the next record, behind everything appended.
func (l *Log) Tail() Position { return l.next }

// ID returns the random name that the log got when it was made and that all its
// files carry.
func (l *Log) ID() LogID { return l.id }

// Segments describes the segment files on disk, oldest first. The last is the
// active one.
func (l *Log) Segments() []SegmentInfo {
	infos := make([]SegmentInfo, len(l.segments))
	for i, s := range l.segments {
		infos[i] = SegmentInfo{Number: s.number, Bytes: s.size, End: s.end}
	}
	return infos
}

// SetCheckpoint sets the function that appends to dst, and returns, what a
// reader must know who starts at a segment and has none before it. It is called
// inside Append, when a record does not fit any more, and must describe the
// state after all records appended before that one: its bytes become the first
// record of the new segment, and are synced before Release may free an older
// one. Without a function segments begin without a checkpoint.
func (l *Log) SetCheckpoint(fn func(dst []byte) []byte) { l.checkpoint = fn }

// poison ends the log. What a failed write or sync left on disk is unknown, and
// asking again may be answered with a success that is none.
func (l *Log) poison(err error) error {
	l.err = fmt.Errorf("%w: %w", ErrPoisoned, err)
	return l.err
}

// Close syncs what is pending, marks the log as closed in order and closes its
// files. A poisoned log closes its files and returns what poisoned it.
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
