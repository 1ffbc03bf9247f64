package raftgroup

import (
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// What comes from other nodes is judged before raft sees it: raft takes its
// peers at their word, and panics where that contradicts what it knows. A
// message is refused, and counted, that
//
//   - is from a replica that is none of the shard, by the group's members as
//     applied here and by the metadata, or from another node than that replica
//     lives on;
//   - no replica that works could send: it calls entries committed that this one
//     never had, acknowledges what was never sent, or contradicts what is
//     committed; its term is beyond all that elections could have come to.
//
// A replica that is behind may know neither the leader nor the members that it
// leads. So a sender is refused only where the metadata, which every node has,
// is as new as the sender's id and does not place it: see Options.Strange.

// maxTermJump is how far a term may be above the one known here. An election
// raises it by one: that many take longer than any node was ever away.
const maxTermJump = 1 << 32

// maxIndex bounds indexes, so that sums of them do not overflow.
const maxIndex = 1 << 62

// places says whether a replica may speak from a node.
func (g *group) places(o *Options, from sharding.NodeID, replica uint64) bool {
	if o.Locate != nil {
		if node, known := o.Locate(g.shard, sharding.ReplicaID(replica)); known {
			return from == "" || node == from
		}
	}
	// Who votes alone knows all members: nobody has come without it.
	return g.member(replica) || !g.soleVoter() && (o.Strange == nil || !o.Strange(g.shard, sharding.ReplicaID(replica)))
}

// believes says whether a replica that works could have sent the message.
func (g *group) believes(m *pb.Message) bool {
	term, last := m.GetTerm(), g.lastHeld()
	if term > g.hard.Term+maxTermJump || m.GetIndex() > maxIndex || m.GetCommit() > maxIndex {
		return false
	}
	switch m.GetType() {
	case pb.MsgHeartbeat:
		return m.GetCommit() <= last // a leader tells what it knows this log to hold
	case pb.MsgAppResp:
		// Who led before a crash may hear of what was sent and not yet synced, also
		// when it leads again: raft passes over what is of an earlier term.
		return m.GetReject() || m.GetIndex() <= last || 0 < term && term < g.hard.Term || g.node.BasicStatus().RaftState != raft.StateLeader
	case pb.MsgApp:
		return term < g.hard.Term || g.log.Agrees(m, g.hard.Commit)
	}
	return true
}

// lastHeld is the last index of the log, what waits for its record included.
func (g *group) lastHeld() uint64 {
	last := g.log.Last()
	if n := len(g.ready.Entries); n > 0 {
		last = max(last, g.ready.Entries[n-1].GetIndex())
	}
	return last
}

// fenceHolds says whether a proposal made in the term of the fence may enter
// the log in term.
func fenceHolds(fence sharding.Term, term uint64) bool {
	return uint64(fence) == term
}
