package wire

import (
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// SnapshotHeader is the raft message at the start of a snapshot's stream.
type SnapshotHeader struct {
	Shard    sharding.ShardID
	From, To sharding.ReplicaID
	// Term is the leader's term.
	Term sharding.Term
	// Index and IndexTerm are the index and term of the last entry in the state.
	Index     uint64
	IndexTerm sharding.Term

	Members Membership
}

const (
	headerVersion   = 1
	headerHeadBytes = 12
	// maxHeaderBytes bounds the part after the head.
	maxHeaderBytes = 4 + 8 + 8 + 8 + 8 + 8 + 8 + 4*(2+8*MaxMembers) + 1
)

// Append appends the header's bytes to b.
func (h *SnapshotHeader) Append(b []byte) []byte {
	start := len(b)
	b = append(b, headerVersion, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint32(b, uint32(h.Shard))
	b = le.AppendUint64(b, uint64(h.From))
	b = le.AppendUint64(b, uint64(h.To))
	b = le.AppendUint64(b, uint64(h.Term))
	b = le.AppendUint64(b, h.Index)
	b = le.AppendUint64(b, uint64(h.IndexTerm))
	b = AppendMembership(b, h.Members)
	body := b[start+headerHeadBytes:]
	le.PutUint32(b[start+4:], uint32(len(body)))
	le.PutUint32(b[start+8:], crc32.Checksum(body, castagnoli))
	return b
}

// ReadSnapshotHeader reads a header from the front of a stream.
func ReadSnapshotHeader(r io.Reader) (h SnapshotHeader, err error) {
	var head [headerHeadBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return h, fmt.Errorf("read snapshot header: %w", err)
	}
	if head[0] != headerVersion || head[1] != 0 || head[2] != 0 || head[3] != 0 {
		return h, fmt.Errorf("%w: snapshot header version %d", journal.ErrUnsupported, head[0])
	}
	n := le.Uint32(head[4:])
	if n > maxHeaderBytes {
		return h, fmt.Errorf("%w: snapshot header with %d bytes", journal.ErrDamaged, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return h, fmt.Errorf("read snapshot header: %w", err)
	}
	if crc32.Checksum(body, castagnoli) != le.Uint32(head[8:]) {
		return h, fmt.Errorf("%w: snapshot header fails its checksum", journal.ErrDamaged)
	}
	d := &Reader{B: body}
	h.Shard = sharding.ShardID(d.U32())
	h.From, h.To = sharding.ReplicaID(d.U64()), sharding.ReplicaID(d.U64())
	h.Term, h.Index, h.IndexTerm = sharding.Term(d.U64()), d.U64(), sharding.Term(d.U64())
	h.Members = d.Membership()
	ids := !raft.IsLocalMsgTarget(uint64(h.From)) && !raft.IsLocalMsgTarget(uint64(h.To)) && h.From != 0 && h.To != 0 && h.From != h.To
	if d.Bad || len(d.B) > 0 || !ids || h.Index == 0 || h.IndexTerm == 0 || h.IndexTerm > h.Term || h.Members.Index > h.Index || len(h.Members.State.GetVoters()) == 0 {
		return h, fmt.Errorf("%w: malformed snapshot header", journal.ErrDamaged)
	}
	return h, nil
}

// TransferHead describes which bytes of a snapshot a stream holds. It is sent
// separately from the stream. Nodes of an earlier release send no head, and
// always start at the first byte.
type TransferHead struct {
	// IsQuestion means that nothing follows the header, because the sender only
	// asks how much of the snapshot was received.
	IsQuestion bool
	Offset     int64
	Digest     statefile.Digest // digest of the stream; zero if unknown
}

// HeadVersion is the version of a transfer's head and of its answer.
const HeadVersion = 1

func (t *TransferHead) Encode() []byte {
	b := []byte{HeadVersion, 0}
	if t.IsQuestion {
		b[1] = 1
	}
	b = le.AppendUint64(b, uint64(t.Offset))
	return append(b, t.Digest[:]...)
}

// ReadTransfer decodes the head of a transfer, and reads the snapshot header
// from the front of the stream.
func ReadTransfer(head []byte, stream io.Reader) (t TransferHead, h SnapshotHeader, err error) {
	if len(head) > 0 {
		d := &Reader{B: head}
		version, asks := d.u8(), d.u8()
		if !d.Bad && version != HeadVersion {
			return t, h, fmt.Errorf("%w: snapshot transfer request version %d", journal.ErrUnsupported, version)
		}
		t.IsQuestion, t.Offset = asks == 1, int64(d.U64())
		copy(t.Digest[:], d.take(len(t.Digest)))
		if d.Bad || len(d.B) > 0 || asks > 1 || t.Offset < 0 || t.Digest == (statefile.Digest{}) {
			return t, h, fmt.Errorf("%w: malformed snapshot transfer request", journal.ErrDamaged)
		}
	}
	h, err = ReadSnapshotHeader(stream)
	return t, h, err
}

// TransferAnswer reports how many bytes of a snapshot its receiver has.
type TransferAnswer struct {
	Wait   bool // the receiver does not know yet; ask again later
	Offset int64
}

func (a *TransferAnswer) Encode() []byte {
	b := []byte{HeadVersion, 0}
	if a.Wait {
		b[1] = 1
	}
	return le.AppendUint64(b, uint64(a.Offset))
}

// ReadAnswer decodes an answer. Earlier releases send an empty answer, which
// means that they have received nothing.
func ReadAnswer(b []byte) (a TransferAnswer, err error) {
	if len(b) == 0 {
		return a, nil
	}
	d := &Reader{B: b}
	version, wait := d.u8(), d.u8()
	a.Wait, a.Offset = wait == 1, int64(d.U64())
	if d.Bad || len(d.B) > 0 || version != HeadVersion || wait > 1 || a.Offset < 0 {
		return a, fmt.Errorf("%w: malformed response to a snapshot transfer", journal.ErrDamaged)
	}
	return a, nil
}

// Message returns the raft message to step into the receiving replica.
func (h *SnapshotHeader) Message() *pb.Message {
	return &pb.Message{
		Type: pb.MsgSnap.Enum(), From: new(uint64(h.From)), To: new(uint64(h.To)), Term: new(uint64(h.Term)),
		Snapshot: SnapshotOf(h.Index, uint64(h.IndexTerm), h.Members.State),
	}
}

// File returns the header that the state must start with.
func (h *SnapshotHeader) File() statefile.Header {
	return statefile.Header{Shard: h.Shard, Index: h.Index, Term: h.IndexTerm}
}

func SnapshotOf(index, term uint64, conf *pb.ConfState) *pb.Snapshot {
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{Index: new(index), Term: new(term), ConfState: proto.Clone(conf).(*pb.ConfState)}}
}
