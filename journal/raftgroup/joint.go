package raftgroup

import pb "go.etcd.io/raft/v3/raftpb"

// leave has a leader leave a joint membership that it did not leave by itself.
// Raft proposes that when the membership is applied, and drops it while the
// leader hands over; if nobody takes over, it tries again with the next entry,
// which may never come. A replica that is to go would be a voter until then.
func (c *Core) leave(g *group) {
	if !g.leader || !g.joint() || !g.conf.state.GetAutoLeave() || g.applied != g.log.last() || g.hands() || g.node.HasReady() {
		return
	}
	// No change at all, as raft proposes it. What is dropped is proposed again.
	_ = g.node.Step(&pb.Message{Type: pb.MsgProp.Enum(), From: new(g.replica), Entries: []*pb.Entry{{Type: pb.EntryConfChangeV2.Enum()}}})
}
