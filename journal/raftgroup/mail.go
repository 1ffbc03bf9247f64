package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// mail is what leaves for other nodes.
type mail struct {
	waiting []Posted // of no ready; they leave with the next turn
	stats   *Counters
}

// post adds a message for the node of its replica, or drops it if nobody knows
// that.
func (p *mail) post(box []Posted, g *group, m *pb.Message) []Posted {
	if g.delayed.keeps(m, g.busy()) {
		return box
	}
	to := g.routes.Locate(m.GetTo())
	if to == nil {
		p.stats.MessagesUnlocated++
		return box
	}
	p.stats.MessagesSent++
	return append(box, Posted{wire.Message{Shard: g.shard, Raft: m}, to})
}

// collect moves what waits into the box.
func (p *mail) collect(box []Posted) []Posted {
	box = append(box, p.waiting...)
	clear(p.waiting)
	p.waiting = p.waiting[:0]
	return box
}

// say sends a note to another replica whose node is heard.
func (p *mail) say(g *group, note byte, to uint64) {
	if to == g.replica || !g.routes.Heard(to) {
		return
	}
	p.waiting = append(p.waiting, Posted{to: g.routes.Locate(to), Message: wire.Message{Shard: g.shard, Note: note, Raft: &pb.Message{
		Type: pb.MsgHeartbeatResp.Enum(), From: new(g.replica), To: new(to), Term: new(max(g.term, 1)),
	}}})
}

// sleeps tells a replica whose node is heard that its leader sleeps.
func (p *mail) sleeps(g *group, to uint64) {
	if to == g.replica || !g.routes.Heard(to) {
		return
	}
	p.waiting = append(p.waiting, Posted{to: g.routes.Locate(to), Message: wire.Message{Shard: g.shard, Note: wire.NoteSleep, Raft: &pb.Message{
		Type: pb.MsgHeartbeat.Enum(), From: new(g.replica), To: new(to), Term: new(g.term), Commit: new(g.hard.Commit),
	}}})
}

// delayAfter entries in a tick make the metadata shard a busy group: all nodes
// act on what it says. Of other shards one is enough.
const delayAfter = 2

// delayed are appends without entries, which only say what is committed: those
// for members of a busy group wait, since the next entries say it too. With one
// entry at a time, half of all messages, and half of a follower's turns, would
// be for nothing else. They leave with the next tick if no entries come; to raft
// they are messages that took their time.
type delayed struct {
	fresh    int           // entries were proposed since the last tick
	messages []*pb.Message // at most one for each member
}

// keeps says whether a message waits. One that does not takes the place of what
// waits for its member.
func (d *delayed) keeps(m *pb.Message, busy bool) bool {
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

// busy reports whether further entries of the group may come soon.
func (g *group) busy() bool {
	return g.delayed.fresh >= delayAfter || g.delayed.fresh > 0 && g.shard != sharding.MetaShard
}

// flush lets what a group delayed go.
func (p *mail) flush(g *group) {
	g.delayed.fresh = 0
	if len(g.delayed.messages) == 0 {
		return
	}
	for _, m := range g.delayed.messages {
		if m.GetTerm() == g.term && g.leader {
			p.waiting = p.post(p.waiting, g, m)
		}
	}
	clear(g.delayed.messages)
	g.delayed.messages = g.delayed.messages[:0]
}
