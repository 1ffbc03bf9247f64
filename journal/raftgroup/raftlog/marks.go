package raftlog

import "github.com/hostd/hostd/journal/wal"

// mark locates the entries from first up to the next mark's first: they are in
// the segment of pos or a later one.
type mark struct {
	first uint64
	pos   wal.Position
}

// Written records that entries from first on were written at pos and replace
// any earlier ones.
func (s *Log) Written(first uint64, pos wal.Position) {
	for len(s.marks) > 0 && s.marks[len(s.marks)-1].first >= first {
		s.marks = s.marks[:len(s.marks)-1]
	}
	if n := len(s.marks); n > 0 && s.marks[n-1].pos.Segment == pos.Segment {
		return
	}
	s.marks = append(s.marks, mark{first, pos})
}

// Needed returns the position of the oldest entry after the truncated index, or
// false if there is no such entry.
func (s *Log) Needed() (wal.Position, bool) {
	for len(s.marks) > 1 && s.marks[1].first <= s.cut+1 {
		s.marks = s.marks[1:]
	}
	if s.Last() == s.cut || len(s.marks) == 0 {
		return wal.Position{}, false
	}
	return s.marks[0].pos, true
}

// Unwritten forgets the positions of the entries, because others replace them.
func (s *Log) Unwritten() { s.marks = nil }
