package wal

import (
	"errors"
	"fmt"
	"path/filepath"
)

// Release frees every segment whose records are all before the position, and
// returns their number. Up to RecycleSegments files are kept for new segments,
// and the other files are removed. The last segment on disk is never freed, so
// with a checkpoint function the log always starts with a durable checkpoint.
// An error of the mark poisons the log. If a file cannot be removed, the next
// Open removes it.
func (l *Log) Release(before Position) (freed int, err error) {
	if l.err != nil {
		return 0, l.err
	}
	for freed < len(l.segments)-1 && l.segments[freed].number < before.Segment {
		freed++
	}
	if freed == 0 {
		return 0, nil
	}
	// Once the mark is durable, the released segments are ignored, even if only
	// some of their files are deleted after a crash.
	m := l.mark.current
	m.first = l.segments[freed].number
	if err := l.mark.writeDurable(m, l.opts.Now()); err != nil {
		return 0, l.poison(err)
	}
	var errs []error
	for _, s := range l.segments[:freed] {
		if err := l.discard(s); err != nil {
			errs = append(errs, fmt.Errorf("release segment %d: %w", s.number, err))
		}
	}
	l.segments = append(l.segments[:0], l.segments[freed:]...)
	return freed, errors.Join(errs...)
}

// discard recycles or removes the file of a released segment.
func (l *Log) discard(s segment) error {
	path := filepath.Join(l.dir, segmentName(s.number))
	if s.size != l.opts.SegmentBytes || len(l.free) >= l.opts.RecycleSegments {
		l.counters.removed.Add(1)
		return l.fs.Remove(path)
	}
	if err := l.fs.Rename(path, filepath.Join(l.dir, freeName(s.number))); err != nil {
		return err
	}
	l.free = append(l.free, freeName(s.number))
	return nil
}
