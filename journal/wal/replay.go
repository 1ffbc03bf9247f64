package wal

import (
	"path/filepath"

	"github.com/hostd/hostd/journal/disk"
)

// Replay calls fn for every record in order, from the oldest segment that was
// not released to the tail. It may be called after Open and before the first
// Append. The payload is only valid during the call. If fn returns an error,
// Replay stops and returns it unchanged.
func (l *Log) Replay(fn func(pos Position, kind byte, payload []byte) error) error {
	if l.err != nil {
		return l.err
	}
	if l.hasAppended {
		return ErrReplayLate
	}
	for _, s := range l.segments {
		if err := l.replaySegment(s, fn); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) replaySegment(s segment, fn func(pos Position, kind byte, payload []byte) error) error {
	h, err := loadHeader(l.fs, l.dir, l.id, s.number)
	if err != nil {
		return err
	}
	name := segmentName(s.number)
	file, err := l.fs.OpenFile(filepath.Join(l.dir, name), disk.ReadOnly)
	if err != nil {
		return newReadFailure(name, 0, err)
	}
	defer file.Close()
	r := newReader(file, h, s.end)
	for r.next.Offset < s.end {
		rec, reason, err := r.read()
		if err != nil {
			return newReadFailure(name, r.next.Offset, err)
		}
		if reason != "" {
			return newDamage(name, r.next.Offset, "%s, although the record was valid when the log was opened", reason)
		}
		if rec.kind == epochKind {
			continue
		}
		if err := fn(rec.position, rec.kind, rec.payload); err != nil {
			return err
		}
	}
	return nil
}
