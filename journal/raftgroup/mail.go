package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// mail collects messages to other nodes.
type mail struct {
	waiting []envelope // messages that come from no raft.Ready; sent with the next turn
	stats   *Counters
}

// post adds a message for the node of its replica, or drops it if that node is
// unknown.
func (p *mail) post(box []envelope, g *group, m *pb.Message) []envelope {
	if g.delayed.delay(m, g.expectsEntries()) {
		return box
	}
	to := g.routes.Locate(m.GetTo())
	if to == nil {
		p.stats.MessagesUnlocated++
		return box
	}
	p.stats.MessagesSent++
	return append(box, envelope{wire.Message{Shard: g.shard, Raft: m}, to})
}

// collect moves the waiting messages into the box.
func (p *mail) collect(box []envelope) []envelope {
	box = append(box, p.waiting...)
	clear(p.waiting)
	p.waiting = p.waiting[:0]
	return box
}

// sendNote sends a note to another replica whose node is alive.
func (p *mail) sendNote(g *group, note byte, to uint64) {
	if to == g.replica || !g.routes.IsAlive(to) {
		return
	}
	p.waiting = append(p.waiting, envelope{to: g.routes.Locate(to), Message: wire.Message{Shard: g.shard, Note: note, Raft: &pb.Message{
		Type: pb.MsgHeartbeatResp.Enum(), From: new(g.replica), To: new(to), Term: new(max(g.term, 1)),
	}}})
}

// sendSleep notifies a replica whose node is alive that its leader goes to sleep.
func (p *mail) sendSleep(g *group, to uint64) {
	if to == g.replica || !g.routes.IsAlive(to) {
		return
	}
	p.waiting = append(p.waiting, envelope{to: g.routes.Locate(to), Message: wire.Message{Shard: g.shard, Note: wire.NoteSleep, Raft: &pb.Message{
		Type: pb.MsgHeartbeat.Enum(), From: new(g.replica), To: new(to), Term: new(g.term), Commit: new(g.hard.Commit),
	}}})
}

// The metadata shard counts as busy if it has at least delayAfter entries per
// tick. Every node acts on the commit index of that shard, so the index is not
// delayed after a single entry. Other shards count as busy after one entry.
const delayAfter = 2

// delayed holds appends without entries, whose only content is the commit
// index. Such messages to members of a busy group wait, because the next append
// with entries carries the commit index too. Without the delay, a group with
// one entry at a time would send half of all its messages for the commit index,
// and these would cause half of a follower's turns. If no entries follow, the
// delayed messages are sent with the next tick. To raft they look like slow
// messages.
type delayed struct {
	fresh    int           // entries proposed since the last tick
	messages []*pb.Message // at most one per member
}

// delay reports whether a message is delayed. A message that is not delayed
// replaces the waiting message for the same member.
func (d *delayed) delay(m *pb.Message, busy bool) bool {
	if m.GetType() != pb.MsgApp {
		return false
	}
	d.messages = slices.DeleteFunc(d.messages, func(p *pb.Message) bool { return p.GetTo() == m.GetTo() })
	if len(m.GetEntries()) > 0 || !busy {
		return false
	}
	d.messages = append(d.messages, m)
	return true
}

// expectsEntries reports whether more entries of the group are likely to follow soon.
func (g *group) expectsEntries() bool {
	return g.delayed.fresh >= delayAfter || g.delayed.fresh > 0 && g.shard != sharding.MetaShard
}

// flush sends the delayed messages of a group.
func (p *mail) flush(g *group) {
	g.delayed.fresh = 0
	if g.steady.on && len(g.proposals) == 0 {
		p.waiting = p.postCommit(p.waiting, g)
	}
	// post removes the message of the same member from the delayed messages.
	messages := g.delayed.messages
	g.delayed.messages = nil
	for _, m := range messages {
		if m.GetTerm() == g.term && g.leader {
			p.waiting = p.post(p.waiting, g, m)
		}
	}
	clear(messages)
	g.delayed.messages = messages[:0]
}
