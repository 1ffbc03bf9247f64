package raftlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sort"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/raftgroup/snapdir"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// catchUp is the catch-up file of a group: the entries that were truncated from
// the log while a snapshot transfer is in progress. The follower continues from
// the snapshot with these entries. The entries are in a file because a snapshot
// of gigabytes takes so long that the entries written meanwhile do not fit into
// memory. The file is never synced, and is useless after a restart, because the
// snapshot transfer then starts over.
//
//	cut, cutTerm | entries in the file | entries in memory
type catchUp struct {
	files *snapdir.Dir
	name  string
	file  disk.File
	// cut is the index before the first entry.
	cut, cutTerm uint64
	at           []int64 // offset of each entry, and the end of the last
	terms        []termFrom
}

// termFrom is the term of the entries starting at an index.
type termFrom struct{ index, term uint64 }

// newCatchUp creates an empty file for the entries after cut.
func newCatchUp(files *snapdir.Dir, name string, cut, cutTerm uint64) (*catchUp, error) {
	file, err := files.Create(name)
	if err != nil {
		return nil, err
	}
	return &catchUp{files: files, name: name, file: file, cut: cut, cutTerm: cutTerm, at: []int64{0}}, nil
}

// last returns the index of the last entry.
func (u *catchUp) last() uint64 { return u.cut + uint64(len(u.at)) - 1 }

// bytes returns the length of the file.
func (u *catchUp) bytes() int64 { return u.at[len(u.at)-1] }

// append adds entries after the last entry, with one write.
func (u *catchUp) append(ents []*pb.Entry) error {
	var b []byte
	from, at, terms := u.bytes(), u.at, u.terms
	for _, e := range ents {
		if len(terms) == 0 || terms[len(terms)-1].term != e.GetTerm() {
			terms = append(terms, termFrom{e.GetIndex(), e.GetTerm()})
		}
		start := len(b)
		b = wire.AppendEntry(le.AppendUint32(b, 0), e)
		le.PutUint32(b[start:], sumEntry(e.GetIndex(), b[start+4:]))
		at = append(at, from+int64(len(b)))
	}
	if _, err := u.file.WriteAt(b, from); err != nil {
		return err
	}
	u.at, u.terms = at, terms
	u.files.AddKept(int64(len(b)))
	return nil
}

func sumEntry(index uint64, b []byte) uint32 {
	return crc32.Update(crc32.Checksum(le.AppendUint64(nil, index), castagnoli), castagnoli, b)
}

// term returns the term of entry i, which is at or after cut.
func (u *catchUp) term(i uint64) uint64 {
	n := sort.Search(len(u.terms), func(n int) bool { return u.terms[n].index > i })
	if n == 0 {
		return u.cutTerm
	}
	return u.terms[n-1].term
}

// entries reads entries from lo up to but excluding hi: at most maxSize bytes,
// but at least one entry. If an entry does not match its checksum the error is
// journal.ErrDamaged.
func (u *catchUp) entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	first := int(lo - u.cut - 1)
	end := first + 1
	for end < int(hi-u.cut-1) && uint64(u.at[end+1]-u.at[first]) <= maxSize {
		end++
	}
	b := make([]byte, u.at[end]-u.at[first])
	if _, err := u.file.ReadAt(b, u.at[first]); err != nil {
		return nil, err
	}
	out := make([]*pb.Entry, 0, end-first)
	for i := range end - first {
		index := lo + uint64(i)
		framed := b[u.at[first+i]-u.at[first] : u.at[first+i+1]-u.at[first]]
		r := wire.Reader{B: framed[4:]}
		e := r.Entry(index, false)
		if r.Bad || len(r.B) > 0 || le.Uint32(framed) != sumEntry(index, framed[4:]) {
			return nil, fmt.Errorf("%w: invalid entry %d in a catch-up file", journal.ErrDamaged, index)
		}
		out = append(out, e)
	}
	return out, nil
}

// close closes and removes the file.
func (u *catchUp) close() {
	u.file.Close()
	u.files.AddKept(-u.bytes())
	_ = u.files.Remove(u.name) // if this fails, the next start removes the file
}

// SaveCatchUp saves the entries up to an index in the catch-up file. A new file
// starts after the index from. After an error no file is kept.
func (s *Log) SaveCatchUp(files *snapdir.Dir, name string, from, to uint64) error {
	if s.catchUp == nil {
		if from = max(from, s.cut); from >= to {
			return nil
		}
		term, err := s.Term(from)
		if err == nil {
			s.catchUp, err = newCatchUp(files, name, from, term)
		}
		if err != nil {
			return err
		}
	}
	ents := s.ents[s.catchUp.last()-s.cut : to-s.cut]
	var size int64
	for _, e := range ents {
		size += entrySize(e)
	}
	err := files.CheckSpace(size)
	if err == nil {
		err = s.catchUp.append(ents)
	}
	if err != nil {
		s.DropCatchUp()
	}
	return err
}

// CatchUpBytes returns the length of the catch-up file, and whether there is
// such a file.
func (s *Log) CatchUpBytes() (bytes int64, ok bool) {
	if s.catchUp == nil {
		return 0, false
	}
	return s.catchUp.bytes(), true
}

// DropCatchUp discards the catch-up file.
func (s *Log) DropCatchUp() {
	if s.catchUp != nil {
		s.catchUp.close()
		s.catchUp = nil
	}
}

// catchUpEntries returns entries of the catch-up file from lo up to but
// excluding hi. After an error, the entries of the file are no longer
// available, like truncated entries.
func (s *Log) catchUpEntries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	out, err := s.catchUp.entries(lo, min(hi, s.cut+1), maxSize)
	if err != nil {
		s.DropCatchUp()
		return nil, raft.ErrCompacted
	}
	return out, nil
}
