package raftlog

import (
	"fmt"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// EntryOverhead is the memory that an entry uses in addition to its data, in
// bytes.
const EntryOverhead = 120

// Log is the in-memory part of a group's log, and raft's Storage. It holds
// every entry after the truncated index that the write-ahead log holds durably.
//
//	cut (index and term kept, entry truncated) | ents[0] … ents[n-1]
//
// Slices handed out are never modified: overwriting and compaction copy.
type Log struct {
	cut, cutTerm uint64
	ents         []*pb.Entry
	bytes        int64
	// catchUp holds entries before the truncated index, in a file; nil while no
	// follower needs them.
	catchUp *catchUp
	// positions locate the entries in the write-ahead log, see mark.
	positions []position
	// hard and conf are the state that raft starts from.
	hard *pb.HardState
	conf *pb.ConfState
	// describe describes the snapshot that would be sent. It is nil if there
	// are no snapshots.
	describe func() (*pb.Snapshot, error)
}

var _ raft.Storage = (*Log)(nil)

// New returns an empty log that starts after the entry at cut.
func New(cut, cutTerm uint64) *Log { return &Log{cut: cut, cutTerm: cutTerm} }

// Start sets the state that raft starts from, and the function that describes
// the snapshot that would be sent. The function is nil if there are no
// snapshots.
func (s *Log) Start(hard *pb.HardState, conf *pb.ConfState, describe func() (*pb.Snapshot, error)) {
	s.hard, s.conf, s.describe = hard, conf, describe
}

// TruncatedIndex returns the truncated index: the index of the entry before the
// first entry in memory.
func (s *Log) TruncatedIndex() uint64 { return s.cut }

// TruncatedTerm returns the term of the entry at the truncated index.
func (s *Log) TruncatedTerm() uint64 { return s.cutTerm }

// Bytes returns the memory used by the entries.
func (s *Log) Bytes() int64 { return s.bytes }

// All returns the entries in memory. They are shared.
func (s *Log) All() []*pb.Entry { return s.ents }

// InitialState returns the state that raft starts from.
func (s *Log) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return s.hard, s.conf, nil
}

// FirstIndex returns the index of the first available entry.
func (s *Log) FirstIndex() (uint64, error) {
	if s.catchUp != nil {
		return s.catchUp.cut + 1, nil
	}
	return s.cut + 1, nil
}

// LastIndex returns the index of the last entry.
func (s *Log) LastIndex() (uint64, error) { return s.Last(), nil }

// Last returns the index of the last entry, or the truncated index if there is
// none.
func (s *Log) Last() uint64 { return s.cut + uint64(len(s.ents)) }

// Term returns the term of entry i; i may be the truncated index.
func (s *Log) Term(i uint64) (uint64, error) {
	switch {
	case i < s.cut && s.catchUp != nil && i >= s.catchUp.cut:
		return s.catchUp.term(i), nil
	case i < s.cut:
		return 0, raft.ErrCompacted
	case i == s.cut:
		return s.cutTerm, nil
	case i > s.Last():
		return 0, raft.ErrUnavailable
	}
	return s.ents[i-s.cut-1].GetTerm(), nil
}

// Entries returns entries from lo up to but excluding hi: at most maxSize
// bytes, but at least one entry.
func (s *Log) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	if lo <= s.cut && s.catchUp != nil && lo > s.catchUp.cut {
		return s.catchUpEntries(lo, hi, maxSize)
	}
	if lo <= s.cut {
		return nil, raft.ErrCompacted
	}
	if hi > s.Last()+1 || lo >= hi {
		return nil, raft.ErrUnavailable
	}
	out := s.ents[lo-s.cut-1 : hi-s.cut-1]
	var size uint64
	for i, e := range out {
		size += uint64(len(e.GetData())) + wire.EntryHeadBytes
		if size > maxSize && i > 0 {
			out = out[:i]
			break
		}
	}
	return out[:len(out):len(out)], nil
}

// Snapshot describes the state to send to a follower that needs entries before
// the truncated index. The state itself is sent separately from raft's
// messages.
func (s *Log) Snapshot() (*pb.Snapshot, error) {
	if s.describe == nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return s.describe()
}

// Append appends entries and replaces conflicting entries.
func (s *Log) Append(add []*pb.Entry) {
	if len(add) == 0 {
		return
	}
	first := add[0].GetIndex()
	if first <= s.cut || first > s.Last()+1 {
		panic(fmt.Sprintf("raftlog: entries from %d appended to a log of %d to %d", first, s.cut+1, s.Last()))
	}
	keep := int(first - s.cut - 1)
	for _, e := range s.ents[keep:] {
		s.bytes -= entrySize(e)
	}
	if keep < len(s.ents) {
		s.ents = append(s.ents[:keep:keep], add...)
	} else {
		s.ents = append(s.ents, add...)
	}
	for _, e := range add {
		s.bytes += entrySize(e)
	}
}

// Compact drops the entries up to index, whose term is term.
func (s *Log) Compact(index, term uint64) {
	n := int(index - s.cut)
	for _, e := range s.ents[:n] {
		s.bytes -= entrySize(e)
	}
	s.ents = append(make([]*pb.Entry, 0, len(s.ents)-n+len(s.ents)/4), s.ents[n:]...)
	s.cut, s.cutTerm = index, term
}

// TailIndex returns the highest index that is followed by entries of at least
// the given size in bytes, or the truncated index if there is none.
func (s *Log) TailIndex(bytes int64) uint64 {
	var sum int64
	for i := len(s.ents) - 1; i >= 0; i-- {
		if sum >= bytes {
			return s.cut + 1 + uint64(i)
		}
		sum += entrySize(s.ents[i])
	}
	return s.cut
}

func entrySize(e *pb.Entry) int64 { return int64(len(e.GetData())) + EntryOverhead }

// Reset empties the log and sets its truncated index. The positions in the
// write-ahead log are unchanged.
func (s *Log) Reset(cut, cutTerm uint64) {
	s.DropCatchUp()
	s.cut, s.cutTerm, s.ents, s.bytes = cut, cutTerm, nil, 0
}

// IsConsistent reports whether an append is consistent with this log's
// committed entries.
func (s *Log) IsConsistent(m *pb.Message, commit uint64) bool {
	same := func(index, term uint64) bool {
		if index < s.cut || index > commit {
			return true
		}
		have, err := s.Term(index)
		return err != nil || have == term
	}
	if !same(m.GetIndex(), m.GetLogTerm()) {
		return false
	}
	for _, e := range m.GetEntries() {
		if e.GetIndex() > commit {
			break
		}
		if !same(e.GetIndex(), e.GetTerm()) {
			return false
		}
	}
	return true
}

// IsAheadOf reports whether this log has entries that the sender of a vote request
// lacks.
func (s *Log) IsAheadOf(m *pb.Message) bool {
	last := s.Last()
	term, _ := s.Term(last)
	return m.GetLogTerm() < term || m.GetLogTerm() == term && m.GetIndex() < last
}
