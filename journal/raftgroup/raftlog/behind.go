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

// behind is the catch-up file of a group: the entries that were truncated from
// the log while a snapshot transfer is in progress. The follower continues from
// the snapshot with these entries. They are in a file because a snapshot of
// gigabytes takes longer than memory has space for the entries written
// meanwhile. The file is never synced and is useless after a restart, which
// also restarts the snapshot.
//
//	cut, cutTerm | entries in the file | entries in memory
type behind struct {
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

// newBehind creates an empty file for the entries after cut.
func newBehind(files *snapdir.Dir, name string, cut, cutTerm uint64) (*behind, error) {
	file, err := files.Create(name)
	if err != nil {
		return nil, err
	}
	return &behind{files: files, name: name, file: file, cut: cut, cutTerm: cutTerm, at: []int64{0}}, nil
}

// last returns the index of the last entry.
func (u *behind) last() uint64 { return u.cut + uint64(len(u.at)) - 1 }

// bytes returns the length of the file.
func (u *behind) bytes() int64 { return u.at[len(u.at)-1] }

// append adds entries after the last one, with one write.
func (u *behind) append(ents []*pb.Entry) error {
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
	u.files.Count(int64(len(b)))
	return nil
}

func sumEntry(index uint64, b []byte) uint32 {
	return crc32.Update(crc32.Checksum(le.AppendUint64(nil, index), castagnoli), castagnoli, b)
}

// term returns the term of entry i, which is at or after cut.
func (u *behind) term(i uint64) uint64 {
	n := sort.Search(len(u.terms), func(n int) bool { return u.terms[n].index > i })
	if n == 0 {
		return u.cutTerm
	}
	return u.terms[n-1].term
}

// entries reads entries from lo up to but excluding hi: at most maxSize bytes,
// but at least one entry. If an entry does not match its checksum the error is
// journal.ErrDamaged.
func (u *behind) entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
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
			return nil, fmt.Errorf("%w: entry %d in a catch-up file", journal.ErrDamaged, index)
		}
		out = append(out, e)
	}
	return out, nil
}

// close closes and removes the file.
func (u *behind) close() {
	u.file.Close()
	u.files.Count(-u.bytes())
	_ = u.files.Remove(u.name) // if this fails, the next start removes the file
}

// Keep saves the entries up to an index in the catch-up file, which starts
// after from if there is none yet. After an error nothing is kept.
func (s *Log) Keep(files *snapdir.Dir, name string, from, to uint64) error {
	if s.behind == nil {
		if from = max(from, s.cut); from >= to {
			return nil
		}
		term, err := s.Term(from)
		if err == nil {
			s.behind, err = newBehind(files, name, from, term)
		}
		if err != nil {
			return err
		}
	}
	ents := s.ents[s.behind.last()-s.cut : to-s.cut]
	var size int64
	for _, e := range ents {
		size += entrySize(e)
	}
	err := files.Fits(size)
	if err == nil {
		err = s.behind.append(ents)
	}
	if err != nil {
		s.ForgetBehind()
	}
	return err
}

// Behind returns the length of the catch-up file, and whether there is one.
func (s *Log) Behind() (bytes int64, ok bool) {
	if s.behind == nil {
		return 0, false
	}
	return s.behind.bytes(), true
}

// ForgetBehind discards the catch-up file.
func (s *Log) ForgetBehind() {
	if s.behind != nil {
		s.behind.close()
		s.behind = nil
	}
}

// behindEntries returns entries of the catch-up file from lo up to but
// excluding hi. After an error they are gone, like truncated ones.
func (s *Log) behindEntries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	out, err := s.behind.entries(lo, min(hi, s.cut+1), maxSize)
	if err != nil {
		s.ForgetBehind()
		return nil, raft.ErrCompacted
	}
	return out, nil
}
