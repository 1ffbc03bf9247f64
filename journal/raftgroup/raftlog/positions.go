package raftlog

import "github.com/hostd/hostd/journal/wal"

// position locates the entries from first up to the first of the next position.
// They are in the segment of pos or in later segments.
type position struct {
	first uint64
	pos   wal.Position
}

// RecordPosition records that entries from first on were written at pos and
// replace any earlier entries.
func (s *Log) RecordPosition(first uint64, pos wal.Position) {
	for len(s.positions) > 0 && s.positions[len(s.positions)-1].first >= first {
		s.positions = s.positions[:len(s.positions)-1]
	}
	if n := len(s.positions); n > 0 && s.positions[n-1].pos.Segment == pos.Segment {
		return
	}
	s.positions = append(s.positions, position{first, pos})
}

// OldestPosition returns the position of the oldest entry after the truncated index, or
// false if there is no such entry.
func (s *Log) OldestPosition() (wal.Position, bool) {
	for len(s.positions) > 1 && s.positions[1].first <= s.cut+1 {
		s.positions = s.positions[1:]
	}
	if s.Last() == s.cut || len(s.positions) == 0 {
		return wal.Position{}, false
	}
	return s.positions[0].pos, true
}

// ClearPositions forgets the positions of the entries, because new entries
// replace them.
func (s *Log) ClearPositions() { s.positions = nil }
