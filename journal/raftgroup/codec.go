package raftgroup

import (
	"encoding/binary"
	"fmt"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/wal"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Kinds of records in the write-ahead log. FORMAT.md has their bytes.
const (
	kindCheckpoint = wal.CheckpointKind
	kindTurn       = wal.CheckpointKind + 1
	kindCut        = wal.CheckpointKind + 2
	kindCreate     = wal.CheckpointKind + 3
	kindRemove     = wal.CheckpointKind + 4
	kindInstall    = wal.CheckpointKind + 5
)

const (
	payloadVersion = 1
	// checkpointVersion is the one written; version 1 knew neither lives nor
	// snapshots.
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
	// maxEntryBytes bounds the data of an entry in the format.
	maxEntryBytes = 16 << 20
	// entryHeadBytes is what an entry takes beside its data.
	entryHeadBytes = 13
	// sectionHeadBytes is what a section takes beside its entries and its
	// membership, at most.
	sectionHeadBytes = 4 + 8 + 1 + 24 + 8 + 4
	// maxMembers bounds each list of replicas in the format.
	maxMembers = 1024
)

var le = binary.LittleEndian

// hardState is raft's HardState as a value.
type hardState struct{ term, vote, commit uint64 }

func hardOf(h *pb.HardState) hardState {
	return hardState{h.GetTerm(), h.GetVote(), h.GetCommit()}
}

func (h hardState) proto() *pb.HardState {
	return &pb.HardState{Term: new(h.term), Vote: new(h.vote), Commit: new(h.commit)}
}

// membership is a ConfState and the index of the entry that made it; 0 for the
// first members.
type membership struct {
	index uint64
	state *pb.ConfState
}

func appendHard(b []byte, h hardState) []byte {
	b = le.AppendUint64(b, h.term)
	b = le.AppendUint64(b, h.vote)
	return le.AppendUint64(b, h.commit)
}

func appendMembership(b []byte, m membership) []byte {
	b = le.AppendUint64(b, m.index)
	for _, list := range [][]uint64{m.state.GetVoters(), m.state.GetLearners(), m.state.GetVotersOutgoing(), m.state.GetLearnersNext()} {
		b = le.AppendUint16(b, uint16(len(list)))
		for _, id := range list {
			b = le.AppendUint64(b, id)
		}
	}
	if m.state.GetAutoLeave() {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendEntry(b []byte, e *pb.Entry) []byte {
	b = le.AppendUint64(b, e.GetTerm())
	b = append(b, byte(e.GetType()))
	b = le.AppendUint32(b, uint32(len(e.GetData())))
	return append(b, e.GetData()...)
}

// section is what a turn record says of one group.
type section struct {
	shard   uint32
	replica uint64
	hard    *hardState
	conf    *membership
	first   uint64
	ents    []*pb.Entry
}

func appendSection(b []byte, s *section) []byte {
	b = le.AppendUint32(b, s.shard)
	b = le.AppendUint64(b, s.replica)
	at := len(b)
	b = append(b, 0)
	if s.hard != nil {
		b[at] |= sectionHard
		b = appendHard(b, *s.hard)
	}
	if s.conf != nil {
		b[at] |= sectionConf
		b = appendMembership(b, *s.conf)
	}
	if len(s.ents) > 0 {
		b[at] |= sectionEntries
		b = le.AppendUint64(b, s.first)
		b = le.AppendUint32(b, uint32(len(s.ents)))
		for _, e := range s.ents {
			b = appendEntry(b, e)
		}
	}
	return b
}

// groupImage is what a checkpoint says of one group.
type groupImage struct {
	shard        uint32
	replica      uint64
	hard         hardState
	cut, cutTerm uint64
	conf         membership
	// generation counts the lives of the shard on this node.
	generation uint32
	// install is the snapshot that this life began with, while the state
	// machine may need it; its index is 0 for none.
	install installImage
}

func appendImage(b []byte, g *groupImage) []byte {
	b = le.AppendUint32(b, g.shard)
	b = le.AppendUint64(b, g.replica)
	b = appendHard(b, g.hard)
	b = le.AppendUint64(b, g.cut)
	b = le.AppendUint64(b, g.cutTerm)
	b = appendMembership(b, g.conf)
	b = le.AppendUint32(b, g.generation)
	if g.install.index == 0 {
		return append(b, 0)
	}
	return appendInstallImage(append(b, 1), g.install)
}

// cutImage is what a cut record says of one group.
type cutImage struct {
	shard       uint32
	replica     uint64
	index, term uint64
}

func appendCut(b []byte, c cutImage) []byte {
	b = le.AppendUint32(b, c.shard)
	b = le.AppendUint64(b, c.replica)
	b = le.AppendUint64(b, c.index)
	return le.AppendUint64(b, c.term)
}

// reader takes fields off the front of b; after the first that does not fit it
// is bad and returns zeros.
type reader struct {
	b   []byte
	bad bool
	row []wire // of messages not read yet
}

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// uvarint reads a number of 7 bits a byte, in the fewest bytes.
func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) hard() hardState { return hardState{r.u64(), r.u64(), r.u64()} }

func (r *reader) membership() membership {
	m := membership{index: r.u64(), state: &pb.ConfState{}}
	for _, list := range []*[]uint64{&m.state.Voters, &m.state.Learners, &m.state.VotersOutgoing, &m.state.LearnersNext} {
		n := int(r.u16())
		if n > maxMembers {
			r.bad = true
		}
		for ; n > 0 && !r.bad; n-- {
			*list = append(*list, r.u64())
		}
	}
	leave := r.u8()
	if leave > 1 {
		r.bad = true
	}
	m.state.AutoLeave = new(leave == 1)
	return m
}

// wireEntry is an entry and what its fields point to, in one piece of memory.
type wireEntry struct {
	e           pb.Entry
	term, index uint64
	kind        pb.EntryType
}

// fill reads an entry; its data is a copy if own is set and aliases b
// otherwise.
func (r *reader) fill(e *wireEntry, index uint64, own bool) bool {
	term, kind, data := r.u64(), r.u8(), r.take(int(r.u32()))
	if kind != entryNormal && kind != entryConf || len(data) > maxEntryBytes {
		r.bad = true
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

// entry reads an entry of its own.
func (r *reader) entry(index uint64, own bool) *pb.Entry {
	e := &wireEntry{}
	if !r.fill(e, index, own) {
		return nil
	}
	return &e.e
}

func (r *reader) section() section {
	s := section{shard: r.u32(), replica: r.u64()}
	flags := r.u8()
	if flags&^(sectionHard|sectionConf|sectionEntries) != 0 || s.replica == 0 {
		r.bad = true
	}
	if flags&sectionHard != 0 {
		h := r.hard()
		s.hard = &h
	}
	if flags&sectionConf != 0 {
		m := r.membership()
		s.conf = &m
	}
	if flags&sectionEntries != 0 {
		s.first = r.u64()
		n := int(r.u32())
		if s.first == 0 || n == 0 || n > len(r.b)/entryHeadBytes {
			r.bad = true
		}
		for i := 0; i < n && !r.bad; i++ {
			s.ents = append(s.ents, r.entry(s.first+uint64(i), true))
		}
	}
	return s
}

func (r *reader) image(version byte) groupImage {
	g := groupImage{shard: r.u32(), replica: r.u64(), hard: r.hard(), cut: r.u64(), cutTerm: r.u64()}
	g.conf = r.membership()
	if version < 2 {
		return g
	}
	g.generation = r.u32()
	switch r.u8() {
	case 0:
	case 1:
		g.install = r.installImage()
	default:
		r.bad = true
	}
	return g
}

// open starts reading a payload and checks its version.
func open(kind byte, payload []byte) (r *reader, version byte, err error) {
	r = &reader{b: payload}
	version = r.u8()
	switch {
	case r.bad:
		return nil, 0, fmt.Errorf("%w: empty log record", journal.ErrDamaged)
	case version == payloadVersion || kind == kindCheckpoint && version == checkpointVersion:
		return r, version, nil
	}
	return nil, 0, fmt.Errorf("%w: log record version %d", journal.ErrUnsupported, version)
}

// done says whether the payload was read to its end.
func (r *reader) done() error {
	if r.bad || len(r.b) != 0 {
		return fmt.Errorf("%w: fields contradict the log record's length", journal.ErrDamaged)
	}
	return nil
}
