package raftgroup

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// entryOverhead is what an entry in memory costs beside its data, in bytes.
const entryOverhead = 120

// entries is the part of a group's log that is kept in memory, and raft's
// Storage: everything behind the cut that the write-ahead log holds durably.
//
//	cut (index and term kept, entry gone) | ents[0] … ents[n-1]
//
// Slices handed out are never written again: truncation and compaction copy.
type entries struct {
	cut, cutTerm uint64
	ents         []*pb.Entry
	bytes        int64
	// hard and conf are what raft starts from.
	hard *pb.HardState
	conf *pb.ConfState
	// describe says what a snapshot would be of; nil: there are none.
	describe func() (*pb.Snapshot, error)
}

var _ raft.Storage = (*entries)(nil)

// InitialState returns what raft starts from.
func (s *entries) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return s.hard, s.conf, nil
}

// FirstIndex is the index of the first entry in memory.
func (s *entries) FirstIndex() (uint64, error) { return s.cut + 1, nil }

// LastIndex is the index of the last entry.
func (s *entries) LastIndex() (uint64, error) { return s.last(), nil }

func (s *entries) last() uint64 { return s.cut + uint64(len(s.ents)) }

// Term returns the term of entry i, also of the cut.
func (s *entries) Term(i uint64) (uint64, error) {
	switch {
	case i < s.cut:
		return 0, raft.ErrCompacted
	case i == s.cut:
		return s.cutTerm, nil
	case i > s.last():
		return 0, raft.ErrUnavailable
	}
	return s.ents[i-s.cut-1].GetTerm(), nil
}

// Entries returns entries from lo to before hi, at most maxSize bytes of them
// but at least one.
func (s *entries) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	if lo <= s.cut {
		return nil, raft.ErrCompacted
	}
	if hi > s.last()+1 || lo >= hi {
		return nil, raft.ErrUnavailable
	}
	out := s.ents[lo-s.cut-1 : hi-s.cut-1]
	var size uint64
	for i, e := range out {
		size += uint64(len(e.GetData())) + entryHeadBytes
		if size > maxSize && i > 0 {
			out = out[:i]
			break
		}
	}
	return out[:len(out):len(out)], nil
}

// Snapshot describes the state that a follower behind the cut gets: the state
// itself moves beside the messages.
func (s *entries) Snapshot() (*pb.Snapshot, error) {
	if s.describe == nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return s.describe()
}

// append adds entries, in the place of those that conflict with them.
func (s *entries) append(add []*pb.Entry) {
	if len(add) == 0 {
		return
	}
	first := add[0].GetIndex()
	if first <= s.cut || first > s.last()+1 {
		panic(fmt.Sprintf("raftgroup: entries from %d appended to a log of %d to %d", first, s.cut+1, s.last()))
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

// compact forgets the entries up to index, which has the term.
func (s *entries) compact(index, term uint64) {
	n := int(index - s.cut)
	for _, e := range s.ents[:n] {
		s.bytes -= entrySize(e)
	}
	s.ents = append(make([]*pb.Entry, 0, len(s.ents)-n+len(s.ents)/4), s.ents[n:]...)
	s.cut, s.cutTerm = index, term
}

// tailIndex returns the highest index behind which lie at least bytes of
// entries, or the cut.
func (s *entries) tailIndex(bytes int64) uint64 {
	var sum int64
	for i := len(s.ents) - 1; i >= 0; i-- {
		if sum >= bytes {
			return s.cut + 1 + uint64(i)
		}
		sum += entrySize(s.ents[i])
	}
	return s.cut
}

func entrySize(e *pb.Entry) int64 { return int64(len(e.GetData())) + entryOverhead }
