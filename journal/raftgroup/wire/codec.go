package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/wal"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Kinds of records in the write-ahead log. FORMAT.md describes their bytes.
const (
	KindCheckpoint = wal.CheckpointKind
	KindTurn       = wal.CheckpointKind + 1
	KindTruncate   = wal.CheckpointKind + 2
	KindCreate     = wal.CheckpointKind + 3
	KindRemove     = wal.CheckpointKind + 4
	KindInstall    = wal.CheckpointKind + 5
)

const (
	PayloadVersion = 1
	// checkpointVersion is the version of checkpoints that are written. Version
	// 1 has no generations and no snapshots.
	checkpointVersion = 2
)

// Flags of a group's section in a turn record.
const (
	sectionHard    = 1 << 0
	sectionConf    = 1 << 1
	sectionEntries = 1 << 2
)

// Kinds of entries.
const (
	entryNormal = 0
	entryConf   = 2 // a ConfChangeV2, as in raftpb
)

const (
	// MaxEntryBytes bounds the data of an entry in the format.
	MaxEntryBytes = 16 << 20
	// EntryHeadBytes is the encoded size of an entry without its data.
	EntryHeadBytes = 13
	// sectionHeadBytes is the maximum encoded size of a section without its
	// entries and membership.
	sectionHeadBytes = 4 + 8 + 1 + 24 + 8 + 4
	// MaxMembers bounds each list of replicas in the format.
	MaxMembers = 1024
)

var le = binary.LittleEndian

// HardState is raft's HardState as a value.
type HardState struct{ Term, Vote, Commit uint64 }

func NewHardState(h *pb.HardState) HardState {
	return HardState{h.GetTerm(), h.GetVote(), h.GetCommit()}
}

func (h HardState) Proto() *pb.HardState {
	return &pb.HardState{Term: new(h.Term), Vote: new(h.Vote), Commit: new(h.Commit)}
}

// Membership is a ConfState and the index of the entry that set it. The index
// is 0 for the first members.
type Membership struct {
	Index uint64
	State *pb.ConfState
}

func appendHard(b []byte, h HardState) []byte {
	b = le.AppendUint64(b, h.Term)
	b = le.AppendUint64(b, h.Vote)
	return le.AppendUint64(b, h.Commit)
}

func AppendMembership(b []byte, m Membership) []byte {
	b = le.AppendUint64(b, m.Index)
	for _, list := range [][]uint64{m.State.GetVoters(), m.State.GetLearners(), m.State.GetVotersOutgoing(), m.State.GetLearnersNext()} {
		b = le.AppendUint16(b, uint16(len(list)))
		for _, id := range list {
			b = le.AppendUint64(b, id)
		}
	}
	if m.State.GetAutoLeave() {
		return append(b, 1)
	}
	return append(b, 0)
}

func AppendEntry(b []byte, e *pb.Entry) []byte {
	b = le.AppendUint64(b, e.GetTerm())
	b = append(b, byte(e.GetType()))
	b = le.AppendUint32(b, uint32(len(e.GetData())))
	return append(b, e.GetData()...)
}

// Section is the part of a turn record for one group.
type Section struct {
	Shard   uint32
	Replica uint64
	Hard    *HardState
	Conf    *Membership
	First   uint64
	Ents    []*pb.Entry
}

func AppendSection(b []byte, s *Section) []byte {
	b = le.AppendUint32(b, s.Shard)
	b = le.AppendUint64(b, s.Replica)
	at := len(b)
	b = append(b, 0)
	if s.Hard != nil {
		b[at] |= sectionHard
		b = appendHard(b, *s.Hard)
	}
	if s.Conf != nil {
		b[at] |= sectionConf
		b = AppendMembership(b, *s.Conf)
	}
	if len(s.Ents) > 0 {
		b[at] |= sectionEntries
		b = le.AppendUint64(b, s.First)
		b = le.AppendUint32(b, uint32(len(s.Ents)))
		for _, e := range s.Ents {
			b = AppendEntry(b, e)
		}
	}
	return b
}

// GroupImage is the part of a checkpoint for one group.
type GroupImage struct {
	Shard                         uint32
	Replica                       uint64
	Hard                          HardState
	TruncatedIndex, TruncatedTerm uint64
	Conf                          Membership
	// Generation numbers the successive copies of the shard's data on this
	// node.
	Generation uint32
	// Install is the snapshot that this generation began with, while the state
	// machine may need it. Its index is 0 for none.
	Install InstallImage
}

func AppendImage(b []byte, g *GroupImage) []byte {
	b = le.AppendUint32(b, g.Shard)
	b = le.AppendUint64(b, g.Replica)
	b = appendHard(b, g.Hard)
	b = le.AppendUint64(b, g.TruncatedIndex)
	b = le.AppendUint64(b, g.TruncatedTerm)
	b = AppendMembership(b, g.Conf)
	b = le.AppendUint32(b, g.Generation)
	if g.Install.Index == 0 {
		return append(b, 0)
	}
	return appendInstallImage(append(b, 1), g.Install)
}

// TruncateImage is the part of a truncate record for one group.
type TruncateImage struct {
	Shard       uint32
	Replica     uint64
	Index, Term uint64
}

func AppendTruncation(b []byte, c TruncateImage) []byte {
	b = le.AppendUint32(b, c.Shard)
	b = le.AppendUint64(b, c.Replica)
	b = le.AppendUint64(b, c.Index)
	return le.AppendUint64(b, c.Term)
}

// Reader decodes fields from the front of B. After the first invalid field, Bad
// is set and all further reads return zeros.
type Reader struct {
	B   []byte
	Bad bool
	row []wire // preallocated messages
}

func (r *Reader) take(n int) []byte {
	if r.Bad || n < 0 || n > len(r.B) {
		r.Bad = true
		return nil
	}
	out := r.B[:n:n]
	r.B = r.B[n:]
	return out
}

func (r *Reader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *Reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (r *Reader) U32() uint32 {
	if b := r.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *Reader) U64() uint64 {
	if b := r.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// uvarint reads a variable-length number in its shortest encoding.
func (r *Reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.B)
	if r.Bad || n <= 0 || n > 1 && r.B[n-1] == 0 {
		r.Bad = true
		return 0
	}
	r.B = r.B[n:]
	return v
}

func (r *Reader) Hard() HardState { return HardState{r.U64(), r.U64(), r.U64()} }

func (r *Reader) Membership() Membership {
	m := Membership{Index: r.U64(), State: &pb.ConfState{}}
	for _, list := range []*[]uint64{&m.State.Voters, &m.State.Learners, &m.State.VotersOutgoing, &m.State.LearnersNext} {
		n := int(r.u16())
		if n > MaxMembers {
			r.Bad = true
		}
		for ; n > 0 && !r.Bad; n-- {
			*list = append(*list, r.U64())
		}
	}
	leave := r.u8()
	if leave > 1 {
		r.Bad = true
	}
	m.State.AutoLeave = new(leave == 1)
	return m
}

// wireEntry is an entry together with the values its fields point to, in one
// allocation.
type wireEntry struct {
	e           pb.Entry
	term, index uint64
	kind        pb.EntryType
}

// fill reads an entry. Its data is a copy if own is set, and otherwise aliases
// B.
func (r *Reader) fill(e *wireEntry, index uint64, own bool) bool {
	term, kind, data := r.U64(), r.u8(), r.take(int(r.U32()))
	if kind != entryNormal && kind != entryConf || len(data) > MaxEntryBytes {
		r.Bad = true
		return false
	}
	if own && len(data) > 0 {
		data = append([]byte(nil), data...)
	}
	if len(data) == 0 {
		data = nil
	}
	e.term, e.index, e.kind = term, index, pb.EntryType(kind)
	e.e.Term, e.e.Index, e.e.Type, e.e.Data = &e.term, &e.index, &e.kind, data
	return true
}

// Entry reads an entry into its own allocation.
func (r *Reader) Entry(index uint64, own bool) *pb.Entry {
	e := &wireEntry{}
	if !r.fill(e, index, own) {
		return nil
	}
	return &e.e
}

func (r *Reader) Section() Section {
	s := Section{Shard: r.U32(), Replica: r.U64()}
	flags := r.u8()
	if flags&^(sectionHard|sectionConf|sectionEntries) != 0 || s.Replica == 0 {
		r.Bad = true
	}
	if flags&sectionHard != 0 {
		h := r.Hard()
		s.Hard = &h
	}
	if flags&sectionConf != 0 {
		m := r.Membership()
		s.Conf = &m
	}
	if flags&sectionEntries != 0 {
		s.First = r.U64()
		n := int(r.U32())
		if s.First == 0 || n == 0 || n > len(r.B)/EntryHeadBytes {
			r.Bad = true
		}
		for i := 0; i < n && !r.Bad; i++ {
			s.Ents = append(s.Ents, r.Entry(s.First+uint64(i), true))
		}
	}
	return s
}

func (r *Reader) Image(version byte) GroupImage {
	g := GroupImage{Shard: r.U32(), Replica: r.U64(), Hard: r.Hard(), TruncatedIndex: r.U64(), TruncatedTerm: r.U64()}
	g.Conf = r.Membership()
	if version < 2 {
		return g
	}
	g.Generation = r.U32()
	switch r.u8() {
	case 0:
	case 1:
		g.Install = r.InstallImage()
	default:
		r.Bad = true
	}
	return g
}

// Open starts decoding a payload and checks its version.
func Open(kind byte, payload []byte) (r *Reader, version byte, err error) {
	r = &Reader{B: payload}
	version = r.u8()
	switch {
	case r.Bad:
		return nil, 0, fmt.Errorf("%w: empty log record", journal.ErrDamaged)
	case version == PayloadVersion || kind == KindCheckpoint && version == checkpointVersion:
		return r, version, nil
	}
	return nil, 0, fmt.Errorf("%w: log record version %d", journal.ErrUnsupported, version)
}

// Done returns an error unless the payload was read to its end without errors.
func (r *Reader) Done() error {
	if r.Bad || len(r.B) != 0 {
		return fmt.Errorf("%w: fields contradict the log record's length", journal.ErrDamaged)
	}
	return nil
}

// Bytes returns an upper bound of the encoded size of the section.
func (s *Section) Bytes() int {
	n := sectionHeadBytes
	if s.Conf != nil {
		st := s.Conf.State
		n += 17 + 8*(len(st.GetVoters())+len(st.GetLearners())+len(st.GetVotersOutgoing())+len(st.GetLearnersNext()))
	}
	for _, e := range s.Ents {
		n += EntryHeadBytes + len(e.GetData())
	}
	return n
}

// Split splits a section that is too long for one record into two. Raft may
// restart after either part, so the commit index of the first part covers only
// entries that the first part contains.
func (s *Section) Split(limit int) (first, rest Section, ok bool) {
	if len(s.Ents) < 2 {
		return first, rest, false
	}
	n, size := 0, sectionHeadBytes
	for ; n < len(s.Ents)-1; n++ {
		if size += EntryHeadBytes + len(s.Ents[n].GetData()); size > limit && n > 0 {
			break
		}
	}
	first, rest = *s, *s
	first.Ents, rest.Ents = s.Ents[:n], s.Ents[n:]
	rest.First = s.First + uint64(n)
	first.Conf = nil
	if s.Hard != nil {
		h := *s.Hard
		h.Commit = min(h.Commit, rest.First-1)
		first.Hard = &h
	}
	return first, rest, true
}

// InstallImage is the log's record of the snapshot that a generation began
// with.
type InstallImage struct {
	Index, Term uint64
	Digest      statefile.Digest
}

func appendInstallImage(b []byte, i InstallImage) []byte {
	b = le.AppendUint64(b, i.Index)
	b = le.AppendUint64(b, i.Term)
	return append(b, i.Digest[:]...)
}

func (r *Reader) InstallImage() (i InstallImage) {
	i.Index, i.Term = r.U64(), r.U64()
	copy(i.Digest[:], r.take(len(i.Digest)))
	if i.Index == 0 || i.Term == 0 {
		r.Bad = true
	}
	return i
}
