package raftgroup

import (
	"fmt"
	"hash/crc32"
	"io"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// SnapshotHeader is the message of raft that a snapshot's stream begins with.
type SnapshotHeader struct {
	Shard    sharding.ShardID
	From, To sharding.ReplicaID
	// Term is the leader's.
	Term sharding.Term
	// Index and IndexTerm are of the last entry in the state.
	Index     uint64
	IndexTerm sharding.Term

	members membership
}

const (
	headerVersion   = 1
	headerHeadBytes = 12
	// maxHeaderBytes bounds what follows the head.
	maxHeaderBytes = 4 + 8 + 8 + 8 + 8 + 8 + 8 + 4*(2+8*maxMembers) + 1
)

// append appends the header's bytes to b.
func (h *SnapshotHeader) append(b []byte) []byte {
	start := len(b)
	b = append(b, headerVersion, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	b = le.AppendUint32(b, uint32(h.Shard))
	b = le.AppendUint64(b, uint64(h.From))
	b = le.AppendUint64(b, uint64(h.To))
	b = le.AppendUint64(b, uint64(h.Term))
	b = le.AppendUint64(b, h.Index)
	b = le.AppendUint64(b, uint64(h.IndexTerm))
	b = appendMembership(b, h.members)
	body := b[start+headerHeadBytes:]
	le.PutUint32(b[start+4:], uint32(len(body)))
	le.PutUint32(b[start+8:], crc32.Checksum(body, castagnoli))
	return b
}

// readSnapshotHeader takes a header off the front of a stream.
func readSnapshotHeader(r io.Reader) (h SnapshotHeader, err error) {
	var head [headerHeadBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return h, fmt.Errorf("read snapshot header: %w", err)
	}
	if head[0] != headerVersion || head[1] != 0 || head[2] != 0 || head[3] != 0 {
		return h, fmt.Errorf("%w: snapshot header version %d", journal.ErrUnsupported, head[0])
	}
	n := le.Uint32(head[4:])
	if n > maxHeaderBytes {
		return h, fmt.Errorf("%w: snapshot header of %d bytes", journal.ErrDamaged, n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return h, fmt.Errorf("read snapshot header: %w", err)
	}
	if crc32.Checksum(body, castagnoli) != le.Uint32(head[8:]) {
		return h, fmt.Errorf("%w: snapshot header fails its checksum", journal.ErrDamaged)
	}
	d := &reader{b: body}
	h.Shard = sharding.ShardID(d.u32())
	h.From, h.To = sharding.ReplicaID(d.u64()), sharding.ReplicaID(d.u64())
	h.Term, h.Index, h.IndexTerm = sharding.Term(d.u64()), d.u64(), sharding.Term(d.u64())
	h.members = d.membership()
	ids := !raft.IsLocalMsgTarget(uint64(h.From)) && !raft.IsLocalMsgTarget(uint64(h.To)) && h.From != 0 && h.To != 0 && h.From != h.To
	if d.bad || len(d.b) > 0 || !ids || h.Index == 0 || h.IndexTerm == 0 || h.IndexTerm > h.Term || h.members.index > h.Index || len(h.members.state.GetVoters()) == 0 {
		return h, fmt.Errorf("%w: snapshot header", journal.ErrDamaged)
	}
	return h, nil
}

// message is what raft is told.
func (h *SnapshotHeader) message() *pb.Message {
	return &pb.Message{
		Type: pb.MsgSnap.Enum(), From: new(uint64(h.From)), To: new(uint64(h.To)), Term: new(uint64(h.Term)),
		Snapshot: snapshotOf(h.Index, uint64(h.IndexTerm), h.members.state),
	}
}

// file is what the state behind the header has to begin with.
func (h *SnapshotHeader) file() statefile.Header {
	return statefile.Header{Shard: h.Shard, Index: h.Index, Term: h.IndexTerm}
}
