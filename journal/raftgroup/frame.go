package raftgroup

import (
	"fmt"
	"hash/crc32"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Message is a raft message of one shard, from replica to replica.
type Message struct {
	Shard sharding.ShardID
	Raft  *pb.Message

	to *peer // in a Turn
}

const (
	frameVersion   = 1
	frameHeadBytes = 8
	messageReject  = 1 << 0
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// carried says which messages go between nodes; index is the MessageType.
var carried = [...]bool{
	pb.MsgApp: true, pb.MsgAppResp: true, pb.MsgVote: true, pb.MsgVoteResp: true,
	pb.MsgHeartbeat: true, pb.MsgHeartbeatResp: true, pb.MsgTimeoutNow: true,
	pb.MsgPreVote: true, pb.MsgPreVoteResp: true,
}

func isCarried(t pb.MessageType) bool { return int(t) < len(carried) && t >= 0 && carried[t] }

// beginFrame starts a frame in b; messages are appended and endFrame seals it.
func beginFrame(b []byte) []byte {
	return append(b[:0], frameVersion, 0, 0, 0, 0, 0, 0, 0)
}

func appendMessage(b []byte, m *Message) []byte {
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
		b = appendEntry(b, e)
	}
	return b
}

func endFrame(b []byte) []byte {
	le.PutUint32(b[4:], crc32.Checksum(b[frameHeadBytes:], castagnoli))
	return b
}

// DecodeFrame checks a frame and calls fn for each message in it. The data of
// entries aliases the frame, which must not be written afterwards. Nothing is
// passed to fn unless the whole frame is sound.
func DecodeFrame(frame []byte, fn func(Message)) error {
	if len(frame) < frameHeadBytes {
		return fmt.Errorf("%w: peer frame of %d bytes", journal.ErrDamaged, len(frame))
	}
	if frame[0] != frameVersion {
		return fmt.Errorf("%w: peer frame version %d", journal.ErrUnsupported, frame[0])
	}
	if frame[1] != 0 || frame[2] != 0 || frame[3] != 0 {
		return fmt.Errorf("%w: peer frame flags", journal.ErrUnsupported)
	}
	body := frame[frameHeadBytes:]
	if crc32.Checksum(body, castagnoli) != le.Uint32(frame[4:]) {
		return fmt.Errorf("%w: peer frame fails its checksum", journal.ErrDamaged)
	}
	var messages []Message
	for r := (&reader{b: body}); len(r.b) > 0; {
		m := r.message()
		if r.bad {
			return fmt.Errorf("%w: message %d of a peer frame", journal.ErrDamaged, len(messages))
		}
		messages = append(messages, m)
	}
	for _, m := range messages {
		fn(m)
	}
	return nil
}

func (r *reader) message() Message {
	m := &pb.Message{}
	out := Message{Shard: sharding.ShardID(r.u32()), Raft: m}
	m.From, m.To = new(r.u64()), new(r.u64())
	m.Type = pb.MessageType(r.u8()).Enum()
	flags := r.u8()
	m.Term, m.LogTerm, m.Index = new(r.u64()), new(r.u64()), new(r.u64())
	m.Commit, m.RejectHint = new(r.u64()), new(r.u64())
	if flags&messageReject != 0 {
		m.Reject = new(true)
	}
	if context := r.take(int(r.u8())); len(context) > 0 {
		m.Context = append([]byte(nil), context...)
	}
	n := int(r.u32())
	if !isCarried(m.GetType()) || flags&^messageReject != 0 || n > len(r.b)/entryHeadBytes || n > 0 && m.GetType() != pb.MsgApp {
		r.bad = true
	}
	if m.GetFrom() == 0 || m.GetTo() == 0 || m.GetFrom() == m.GetTo() || m.GetTerm() == 0 {
		r.bad = true
	}
	// Terms never fall along a log and never exceed the sender's.
	last := m.GetLogTerm()
	for i := 0; i < n && !r.bad; i++ {
		e := r.entry(m.GetIndex()+1+uint64(i), false)
		if e == nil || e.GetTerm() < last || e.GetTerm() > m.GetTerm() {
			r.bad = true
			break
		}
		last = e.GetTerm()
		m.Entries = append(m.Entries, e)
	}
	return out
}
