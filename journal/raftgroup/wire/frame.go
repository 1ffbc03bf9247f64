package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Message is a raft message of one shard, from replica to replica.
type Message struct {
	Shard sharding.ShardID
	Raft  *pb.Message

	Note byte
}

// Notes are messages between replicas that raft does not see. NoteSleep has the
// form of a heartbeat, and NoteWake has the form of a heartbeat response.
const (
	NoteNone = iota
	NoteSleep
	NoteWake
)

const (
	frameVersion   = 2
	FrameHeadBytes = 8
	messageReject  = 1 << 0
)

// Forms of a message in a frame. Messages of an idle group use a short form.
const (
	formFull = iota
	formHeartbeat
	formHeartbeatResp
	formSleep
	formWake
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// carriedTypes lists the message types that are sent between nodes, indexed by
// MessageType.
var carriedTypes = [...]bool{
	pb.MsgApp: true, pb.MsgAppResp: true, pb.MsgVote: true, pb.MsgVoteResp: true,
	pb.MsgHeartbeat: true, pb.MsgHeartbeatResp: true, pb.MsgTimeoutNow: true,
	pb.MsgPreVote: true, pb.MsgPreVoteResp: true,
}

func IsCarried(t pb.MessageType) bool { return int(t) < len(carriedTypes) && t >= 0 && carriedTypes[t] }

// BeginFrame starts a frame in b. Messages are appended, and EndFrame seals it.
func BeginFrame(b []byte) []byte {
	return append(b[:0], frameVersion, 0, 0, 0, 0, 0, 0, 0)
}

func AppendMessage(b []byte, m *Message) []byte {
	switch form := m.form(); form {
	case formFull:
		return appendFull(append(b, formFull), m)
	default:
		return appendShort(append(b, form), m, form)
	}
}

func (m *Message) form() byte {
	switch t := m.Raft.GetType(); {
	case m.Note == NoteSleep:
		return formSleep
	case m.Note == NoteWake:
		return formWake
	case t == pb.MsgHeartbeat:
		return formHeartbeat
	case t == pb.MsgHeartbeatResp:
		return formHeartbeatResp
	}
	return formFull
}

func appendShort(b []byte, m *Message, form byte) []byte {
	r := m.Raft
	b = binary.AppendUvarint(b, uint64(m.Shard))
	b = binary.AppendUvarint(b, r.GetFrom())
	b = binary.AppendUvarint(b, r.GetTo())
	b = binary.AppendUvarint(b, r.GetTerm())
	if form == formHeartbeat || form == formSleep {
		b = binary.AppendUvarint(b, r.GetCommit())
	}
	if form == formHeartbeat || form == formHeartbeatResp {
		b = append(b, byte(len(r.GetContext())))
		b = append(b, r.GetContext()...)
	}
	return b
}

func appendFull(b []byte, m *Message) []byte {
	r := m.Raft
	b = le.AppendUint32(b, uint32(m.Shard))
	b = le.AppendUint64(b, r.GetFrom())
	b = le.AppendUint64(b, r.GetTo())
	b = append(b, byte(r.GetType()))
	if r.GetReject() {
		b = append(b, messageReject)
	} else {
		b = append(b, 0)
	}
	b = le.AppendUint64(b, r.GetTerm())
	b = le.AppendUint64(b, r.GetLogTerm())
	b = le.AppendUint64(b, r.GetIndex())
	b = le.AppendUint64(b, r.GetCommit())
	b = le.AppendUint64(b, r.GetRejectHint())
	b = append(b, byte(len(r.GetContext())))
	b = append(b, r.GetContext()...)
	b = le.AppendUint32(b, uint32(len(r.GetEntries())))
	for _, e := range r.GetEntries() {
		b = AppendEntry(b, e)
	}
	return b
}

func EndFrame(b []byte) []byte {
	le.PutUint32(b[4:], crc32.Checksum(b[FrameHeadBytes:], castagnoli))
	return b
}

// DecodeFrame checks a frame and calls fn for each message in it. The data of
// entries aliases the frame, which must not be written afterwards. fn is not
// called unless the whole frame is valid.
func DecodeFrame(frame []byte, fn func(Message)) error {
	if len(frame) < FrameHeadBytes {
		return fmt.Errorf("%w: peer frame with %d bytes", journal.ErrDamaged, len(frame))
	}
	if frame[0] != frameVersion {
		return fmt.Errorf("%w: peer frame version %d", journal.ErrUnsupported, frame[0])
	}
	if frame[1] != 0 || frame[2] != 0 || frame[3] != 0 {
		return fmt.Errorf("%w: unknown peer frame flags", journal.ErrUnsupported)
	}
	body := frame[FrameHeadBytes:]
	if crc32.Checksum(body, castagnoli) != le.Uint32(frame[4:]) {
		return fmt.Errorf("%w: peer frame fails its checksum", journal.ErrDamaged)
	}
	messages := make([]Message, 0, 1+min(len(body)/typicalBytes, 1024))
	for r := (&Reader{B: body}); len(r.B) > 0; {
		m := r.message()
		if r.Bad {
			return fmt.Errorf("%w: malformed message %d of a peer frame", journal.ErrDamaged, len(messages))
		}
		messages = append(messages, m)
	}
	for _, m := range messages {
		fn(m)
	}
	return nil
}

// typicalBytes is the assumed length of a message before it is decoded.
const (
	typicalBytes = 64
	maxRow       = 32
)

// wire is a message together with the values its fields point to, in one
// allocation.
type wire struct {
	m                              pb.Message
	from, to, term, logTerm, index uint64
	commit, rejectHint             uint64
	kind                           pb.MessageType
	reject                         bool
}

// newWire takes the next message of a preallocated batch for the rest of the
// frame. All messages of a frame are stepped and dropped together.
func (r *Reader) newWire(kind pb.MessageType) *wire {
	if len(r.row) == 0 {
		r.row = make([]wire, min(1+len(r.B)/typicalBytes, maxRow))
	}
	w := &r.row[0]
	r.row = r.row[1:]
	w.kind = kind
	w.m.Type, w.m.From, w.m.To, w.m.Term = &w.kind, &w.from, &w.to, &w.term
	return w
}

func (r *Reader) message() (m Message) {
	switch form := r.u8(); form {
	case formFull:
		m = r.full()
	case formHeartbeat, formSleep:
		m = r.short(r.newWire(pb.MsgHeartbeat), form)
	case formHeartbeatResp, formWake:
		m = r.short(r.newWire(pb.MsgHeartbeatResp), form)
	default:
		r.Bad = true
		return m
	}
	if m.Raft.GetFrom() == 0 || m.Raft.GetTo() == 0 || m.Raft.GetFrom() == m.Raft.GetTo() || m.Raft.GetTerm() == 0 {
		r.Bad = true
	}
	return m
}

func (r *Reader) short(w *wire, form byte) Message {
	shard := r.uvarint()
	if shard > math.MaxUint32 {
		r.Bad = true
	}
	out := Message{Shard: sharding.ShardID(shard), Raft: &w.m}
	w.from, w.to, w.term = r.uvarint(), r.uvarint(), r.uvarint()
	if form == formHeartbeat || form == formSleep {
		w.commit = r.uvarint()
		w.m.Commit = &w.commit
	}
	switch form {
	case formSleep:
		out.Note = NoteSleep
	case formWake:
		out.Note = NoteWake
	default:
		w.m.Context = r.context()
	}
	return out
}

func (r *Reader) context() []byte {
	if context := r.take(int(r.u8())); len(context) > 0 {
		return append([]byte(nil), context...)
	}
	return nil
}

func (r *Reader) full() Message {
	shard := sharding.ShardID(r.U32())
	from, to := r.U64(), r.U64()
	w := r.newWire(pb.MessageType(r.u8()))
	m := &w.m
	flags := r.u8()
	w.from, w.to, w.term, w.logTerm, w.index = from, to, r.U64(), r.U64(), r.U64()
	w.commit, w.rejectHint = r.U64(), r.U64()
	m.LogTerm, m.Index, m.Commit, m.RejectHint = &w.logTerm, &w.index, &w.commit, &w.rejectHint
	if flags&messageReject != 0 {
		w.reject = true
		m.Reject = &w.reject
	}
	m.Context = r.context()
	n := int(r.U32())
	if !IsCarried(w.kind) || w.kind == pb.MsgHeartbeat || w.kind == pb.MsgHeartbeatResp || flags&^messageReject != 0 ||
		n > len(r.B)/EntryHeadBytes || n > 0 && w.kind != pb.MsgApp {
		r.Bad = true
		return Message{Shard: shard, Raft: m}
	}
	r.entries(m, n)
	return Message{Shard: shard, Raft: m}
}

// entries reads the entries of an append. Terms never decrease along a log and
// never exceed the sender's.
func (r *Reader) entries(m *pb.Message, n int) {
	if n == 0 {
		return
	}
	last := m.GetLogTerm()
	all := make([]wireEntry, n)
	m.Entries = make([]*pb.Entry, n)
	for i := range all {
		e := &all[i]
		if !r.fill(e, m.GetIndex()+1+uint64(i), false) || e.term < last || e.term > m.GetTerm() {
			r.Bad = true
			return
		}
		if e.kind == entryConf && CheckMembers(e.e.Data) != nil {
			r.Bad = true // raft would detect the error only when the entry is committed
			return
		}
		last = e.term
		m.Entries[i] = &e.e
	}
}

// EncodeFrame returns a frame of the messages.
func EncodeFrame(messages []Message) []byte {
	b := BeginFrame(nil)
	for i := range messages {
		b = AppendMessage(b, &messages[i])
	}
	return EndFrame(b)
}
