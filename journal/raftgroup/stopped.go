package raftgroup

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/inbox"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// Stopped says that the state machine applies no more of a replica's log. Such
// a replica steps aside until a snapshot, or another replica, takes its place:
//
//	leads ──▶ hands over, and reports at once that it leads no more ──▶ aside
//	follows ─────────────────────────────────────────────────────────▶ aside
//
// Aside it never stands for election, whatever asks it to, takes no proposals
// and no reads, and sends no snapshot. What it still does depends on the reason:
//
//   - StopUnsupported: what its log promised is there, and only this release
//     cannot read it. It votes and acknowledges, so that a group with one whole
//     replica works. It takes no more entries once the stopped replicas of the
//     node hold RetainTotalBytes of them.
//   - StopDamaged: the disk that its state was on has lied once, and its log is
//     on the same disk. It says nothing any more, and does not count as heard.
type Stopped struct {
	Shard sharding.ShardID
	// Generation is the generation that has stopped: one that began later works.
	Generation uint32
	Reason     sharding.StopReason
}

// errAside: a replica that has stopped on damage takes nothing.
var errAside = errors.New("raftgroup: the replica has stopped")

// ReplicaStopped lets a replica step aside whose state machine has stopped. It
// does not block.
func (l *Loop) ReplicaStopped(s Stopped) {
	_ = l.inbox.Put(func(w *inbox.Work) error { w.Stopped = append(w.Stopped, inbox.Stopped(s)); return nil })
}

// ReplicaStopped lets a replica step aside whose state machine has stopped. A
// reason is kept until the replica's life ends, but damage is the worse one.
func (c *Core) ReplicaStopped(s Stopped) {
	g := c.groups[s.Shard]
	if g == nil || g.generation != s.Generation || g.stopped >= s.Reason {
		return
	}
	if g.stopped == sharding.NotStopped {
		c.stopped.groups = append(c.stopped.groups, g)
	}
	g.stopped, g.campaign, g.uncut = s.Reason, false, true
	g.candidacy.End()
	g.asked = nil
	c.retention.due = true
	c.clocks.wake(g)
	c.reckon(g)
	c.touch(g)
}

// aside is why a replica has stepped aside, if it has.
type aside struct {
	stopped sharding.StopReason
	failed  bool     // raft panicked; it is asked nothing any more
	asked   []uint64 // voters that were asked to lead in its place
}

// resume is a new generation, which works.
func (a *aside) resume() { a.stopped, a.asked = sharding.NotStopped, nil }

// mute says that the replica says nothing: it is damaged, and does not lead.
func (g *group) mute() bool {
	return g.failed || g.stopped == sharding.StopDamaged && g.node.BasicStatus().RaftState != raft.StateLeader
}

// able says that the replica may vote as far as it knows itself.
func (g *group) able() bool {
	return g.stopped == sharding.NotStopped || g.stopped == sharding.StopUnsupported && !g.soleVoter()
}

// takes says whether a replica that has stopped takes a message.
func (c *Core) takes(g *group, m *pb.Message) bool {
	t := m.GetType()
	switch {
	case g.stopped == sharding.NotStopped:
		return true
	case t == pb.MsgTimeoutNow:
		return false
	case g.stopped == sharding.StopUnsupported:
		return t != pb.MsgApp || len(m.GetEntries()) == 0 || c.stopped.bytes() < c.opts.RetainTotalBytes
	case g.mute():
		return false
	}
	// It hands over: the heir has to say how far it is, and then stands.
	if m.GetTerm() > g.term {
		c.stepAside(g)
		return false
	}
	return t == pb.MsgAppResp || t == pb.MsgHeartbeatResp
}

// stoppedGroups are the groups whose state machine has stopped.
type stoppedGroups struct {
	groups   []*group
	failures []Failure // of raft, that nobody was told of
}

func (s *stoppedGroups) remove(g *group) {
	s.groups = slices.DeleteFunc(s.groups, func(o *group) bool { return o == g })
}

// bytes is what their logs hold.
func (s *stoppedGroups) bytes() (n int64) {
	for _, g := range s.groups {
		n += g.log.Bytes()
	}
	return n
}

// takeFailures returns the failures since the last call.
func (s *stoppedGroups) takeFailures() []Failure {
	out := s.failures
	s.failures = nil
	return out
}

// beat is a tick of a replica that has stopped. Raft's own would let it stand.
func (c *Core) beat(g *group) {
	c.mail.flush(g)
	if g.node.BasicStatus().RaftState == raft.StateLeader {
		if !g.soleVoter() {
			c.yield(g)
		}
		g.node.Tick()
		c.touch(g)
		return
	}
	if g.mute() {
		c.clocks.stop(g)
		return
	}
	// It may vote for another once it has not heard of its leader for as long as
	// others wait that stand.
	if g.unheard++; g.unheard >= c.opts.ElectionTicks && g.lead != raft.None {
		_ = g.node.ForgetLeader()
		c.touch(g)
	}
}

// yield hands a leadership over to the voter that is furthest ahead of those
// heard, to the next one when that has come to nothing within an election
// timeout, and gives it up when nobody is left to ask.
func (c *Core) yield(g *group) {
	if g.node.BasicStatus().LeadTransferee != raft.None {
		return
	}
	var heirs []uint64
	ahead := map[uint64]uint64{}
	g.node.WithProgress(func(id uint64, kind raft.ProgressType, p tracker.Progress) {
		if id != g.replica && kind == raft.ProgressTypePeer && p.Match > 0 && g.routes.Heard(id) && !slices.Contains(g.asked, id) {
			heirs = append(heirs, id)
			ahead[id] = p.Match
		}
	})
	if len(heirs) > 0 {
		heir := slices.MinFunc(heirs, func(a, b uint64) int { return cmp.Or(cmp.Compare(ahead[b], ahead[a]), cmp.Compare(a, b)) })
		g.asked = append(g.asked, heir)
		g.node.TransferLeader(heir)
		return
	}
	g.asked = nil
	c.stepAside(g)
	for _, id := range g.others() {
		c.mail.say(g, wire.NoteWake, id) // a leader does not ask to be led
	}
}

// others are the members beside this one, each once.
func (g *group) others() (ids []uint64) {
	for _, list := range g.lists() {
		for _, id := range list {
			if id != g.replica && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// Failure is a call of Options.Failed.
type Failure struct {
	Shard sharding.ShardID
	Err   error
}

// contain is deferred around what raft does for one group. A panic there is the
// group's failure and no other's: the group is taken out of everything, as the
// log has it, and counts as one that has stopped on damage. Without
// Options.Failed the panic goes on.
func (c *Core) contain(g *group) {
	if c.opts.Failed == nil {
		return
	}
	if r := recover(); r != nil {
		c.fail(g, fmt.Errorf("raft: %v", r))
		c.opts.Logger.Error("a raft group failed", "shard_id", uint64(g.shard), "replica_id", g.replica, "error", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
}

// fail takes a group out for the rest of the process' life. Its raft is asked
// nothing any more: what that holds in memory may be of two minds.
func (c *Core) fail(g *group, err error) {
	if g.failed {
		return
	}
	g.failed = true
	c.ReplicaStopped(Stopped{Shard: g.shard, Generation: g.generation, Reason: sharding.StopDamaged})
	c.clocks.stop(g)
	c.touch(g)
	c.stopped.failures = append(c.stopped.failures, Failure{g.shard, err})
}

// beginFailed is the turn of a group that failed: it reports that it leads no
// more, and writes what the state machine may go beyond.
func (c *Core) beginFailed(g *group) {
	if g.leader {
		c.led--
	}
	if g.leader || g.lead != 0 {
		g.leadership.end()
		c.turn.Leaders = append(c.turn.Leaders, LeaderChange{g.shard, sharding.Term(g.term), 0, false})
	}
	for _, p := range g.proposals {
		c.turn.Dropped = append(c.turn.Dropped, Dropped{g.shard, p.fence, p.number, ErrNotLeader})
	}
	g.proposals, g.readyWaits = nil, false
	c.turn.Reads = g.failReads(c.turn.Reads)
	if in := g.transfer.incoming; in != nil && in.Stepped {
		g.transfer.incoming = nil
		c.transfers.discard(in, errAside)
	}
	if g.confUnwritten {
		c.turn.MustSync = true
		c.records.add(g, g.unwritten(g.log.Last()))
	}
}

// step gives raft a message.
func (c *Core) step(g *group, m *pb.Message) {
	defer c.contain(g)
	// Errors say that the message was ignored, which is right.
	_ = g.node.Step(m)
}

// campaign lets a group stand for election; it may be refused.
func (c *Core) campaign(g *group) {
	defer c.contain(g)
	_ = g.node.Campaign()
	c.touch(g)
}
