package raftgroup

import (
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// Messages from other nodes are checked before raft sees them, because raft
// trusts its peers and panics if a message contradicts its state. Two kinds of
// messages are rejected and counted as forged:
//
//   - The sender is not a replica of the shard, neither by the group's members
//     as applied here nor by the metadata, or the message comes from a node
//     other than the replica's.
//   - No correct replica could send it: it claims that entries are committed
//     which this replica never had, acknowledges entries that were never sent,
//     contradicts committed entries, or carries a term beyond any that
//     elections could have reached.
//
// A replica that lags may not know the current leader or its members. An unknown
// sender is therefore rejected only if the metadata, which every node has, is at
// least as new as the sender's id and does not place the sender
// (Placement.IsUnknownReplica). This rules out no new id of the metadata shard,
// so any node with a certificate of the cluster could make itself the leader of
// that shard. Messages of unknown senders are therefore ignored while the
// replica has a leader. A replica that follows a deposed leader forgets it after an election
// timeout, and then follows the unknown one.

// maxTermJump is the maximum difference between a message's term and the term
// known here. An election raises the term by one, so even a node that was away
// for years stays far below this bound.
const maxTermJump = 1 << 32

// maxIndex bounds indexes so that sums of them do not overflow.
const maxIndex = 1 << 62

// sender is what a group knows of the replica that sent a message.
type sender int

const (
	senderKnown    sender = iota // a replica of the shard, on its node
	senderForeign                // not a replica of the shard, or not on its node
	senderUnplaced               // possibly a replica of the shard
)

// senderOf returns what the group knows of a replica that sends from a node.
func (c *Core) senderOf(g *group, from sharding.NodeID, replica uint64) sender {
	if c.opts.Placement != nil {
		switch node, known := c.opts.Placement.Locate(g.shard, sharding.ReplicaID(replica)); {
		case known && (from == "" || node == from):
			return senderKnown
		case known:
			return senderForeign
		}
	}
	// A sole voter knows all members, because no replica can have joined without
	// its vote.
	switch {
	case g.isMember(replica):
		return senderKnown
	case g.isSoleVoter() || c.opts.Placement != nil && c.opts.Placement.IsUnknownReplica(g.shard, sharding.ReplicaID(replica)):
		return senderForeign
	}
	return senderUnplaced
}

// ignoresUnplaced reports whether the group ignores a message of an unknown
// sender.
func (c *Core) ignoresUnplaced(g *group) bool {
	if !g.HasLeader() {
		return false
	}
	c.clocks.wake(g) // a sleeping replica would follow the leader that it knows forever
	if !g.leader && g.unheard >= c.opts.ElectionTicks {
		c.forgetLeader(g) // a learner has no election timeout of its own
		return false
	}
	return true
}

// isPlausible reports whether a correct replica could have sent the message.
func (g *group) isPlausible(m *pb.Message) bool {
	term, last := m.GetTerm(), g.lastIndex()
	if term > g.hard.Term+maxTermJump || m.GetIndex() > maxIndex || m.GetCommit() > maxIndex {
		return false
	}
	switch m.GetType() {
	case pb.MsgHeartbeat:
		return m.GetCommit() <= last // a leader sends a commit index no higher than the last index that it knows this log to have
	case pb.MsgAppResp:
		// A replica that led before a crash may receive acknowledgments of entries
		// that it sent but had not synced, even if it leads again. Raft ignores
		// acknowledgments of an earlier term.
		return m.GetReject() || m.GetIndex() <= last || 0 < term && term < g.hard.Term || g.raw.BasicStatus().RaftState != raft.StateLeader
	case pb.MsgApp:
		return term < g.hard.Term || g.log.IsConsistent(m, g.hard.Commit)
	}
	return true
}

// lastIndex returns the last index of the log, including entries whose record is
// not written yet.
func (g *group) lastIndex() uint64 {
	last := g.log.Last()
	if n := len(g.ready.Entries); n > 0 {
		last = max(last, g.ready.Entries[n-1].GetIndex())
	}
	return last
}

// isFenceValid reports whether a proposal made in the term of the fence may enter
// the log in term.
func isFenceValid(fence sharding.Term, term uint64) bool {
	return uint64(fence) == term
}
