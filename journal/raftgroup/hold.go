package raftgroup

import (
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
)

// holdTicks after its snapshot a follower has the entries behind it.
const holdTicks = 50

// hold keeps the entries behind a snapshot under way from being cut, so that
// its follower can go on from it.
type hold struct {
	to    uint64
	index uint64
	until uint64 // the tick at which it ends, 0 while the snapshot is sent
	there uint64 // the index of the snapshot that the follower has durably
}

// arrived notes that a replica has a snapshot of that index durably.
func (g *group) arrived(to, index uint64) {
	for i := range g.holds {
		if g.holds[i].to == to {
			g.holds[i].there = index
		}
	}
}

// outdated reports whether a follower said before its snapshot came that it
// has less than that. Snapshots do not travel with the messages, so one that
// was sent earlier can come later, and raft, which hopes that this is rare,
// would send the whole snapshot once more.
func (g *group) outdated(m *pb.Message) bool {
	if m.GetType() != pb.MsgAppResp || !m.GetReject() {
		return false
	}
	return slices.ContainsFunc(g.holds, func(h hold) bool { return h.to == m.GetFrom() && m.GetRejectHint() < h.there })
}

// letGo ends the holds of a replica at a tick.
func (g *group) letGo(to, tick uint64) {
	for i := range g.holds {
		if g.holds[i].to == to {
			g.holds[i].until = tick
		}
	}
}

// held is the index behind which entries are held now, at most keep. The
// snapshots under way share what a node retains, beside what it retains anyway:
// one that takes longer than its share lasts was sent in vain.
func (c *Core) held(g *group, keep uint64) uint64 {
	g.holds = slices.DeleteFunc(g.holds, func(h hold) bool { return h.until != 0 && h.until <= c.now })
	if len(g.holds) == 0 {
		return keep
	}
	first := keep
	for _, h := range g.holds {
		first = min(first, h.index)
	}
	share := c.opts.RetainTotalBytes / int64(max(1, c.sending))
	return min(keep, max(first, g.log.tailIndex(share)))
}
