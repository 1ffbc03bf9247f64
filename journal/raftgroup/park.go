package raftgroup

import (
	pb "go.etcd.io/raft/v3/raftpb"
)

// parkAfter entries in a tick make a group a busy one.
const parkAfter = 2

// park keeps an append without entries, which only says what is committed,
// back from a member of a busy group, where the next entries say it too: with
// one entry at a time, half of all messages, and half of a follower's turns,
// would be for nothing else. It leaves with the next tick if no entries come;
// to raft it is a message that took its time.
func (g *group) park(m *pb.Message) bool {
	if m.GetType() != pb.MsgApp {
		return false
	}
	for i, p := range g.parked {
		if p.GetTo() == m.GetTo() {
			last := len(g.parked) - 1
			g.parked[i], g.parked[last] = g.parked[last], nil
			g.parked = g.parked[:last]
			break
		}
	}
	if len(m.GetEntries()) > 0 || g.fresh < parkAfter {
		return false
	}
	g.parked = append(g.parked, m)
	return true
}

// unpark lets what was kept back go.
func (c *Core) unpark(g *group) {
	g.fresh = 0
	if len(g.parked) == 0 {
		return
	}
	for _, m := range g.parked {
		if m.GetTerm() == g.term && g.leader {
			c.outbox = c.post(c.outbox, g, m)
		}
	}
	clear(g.parked)
	g.parked = g.parked[:0]
}
