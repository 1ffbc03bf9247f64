package raftgroup

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// StoppedReplica reports that the state machine no longer applies a replica's log.
// Such a replica steps aside until a snapshot or another replica replaces it:
//
//	leader ──▶ transfers its leadership, and reports at once that it no longer leads ──▶ aside
//	follower ──────────────────────────────────────────────────────────────────────────▶ aside
//
// A replica that stepped aside never campaigns, even if it is asked to, accepts
// no proposals or reads, and sends no snapshot. What else it does depends on
// the reason:
//
//   - StopUnsupported: its log is intact and only this release cannot read it.
//     It votes and acknowledges entries, so that a group with one healthy
//     replica stays available. It accepts no more entries once the stopped
//     replicas of the node hold RetainTotalBytes of them.
//   - StopDamaged: the disk returned wrong data for its state, and its log is
//     on the same disk. It stops responding, and does not count as alive.
type StoppedReplica struct {
	Shard sharding.ShardID
	// Generation is the generation that has stopped. A later generation works.
	Generation uint32
	Reason     sharding.StopReason
}

// errReplicaStopped: a replica that stopped on damage accepts nothing.
var errReplicaStopped = errors.New("raftgroup: the replica has stopped")

// ReplicaStopped makes a replica step aside because its state machine has
// stopped. It does not block.
func (l *Loop) ReplicaStopped(s StoppedReplica) {
	_ = l.inbox.Put(func(w *inboxWork) error { w.Stopped = append(w.Stopped, s); return nil })
}

// replicaStopped makes a replica step aside because its state machine has
// stopped. The reason stays until the replica's generation ends; only
// StopDamaged replaces another reason.
func (c *Core) replicaStopped(s StoppedReplica) {
	g := c.groups[s.Shard]
	if g == nil || g.generation != s.Generation || g.stopped >= s.Reason {
		return
	}
	if g.stopped == sharding.NotStopped {
		c.stopped.groups = append(c.stopped.groups, g)
	}
	g.stopped, g.campaign, g.truncatable = s.Reason, false, true
	g.candidacy.End()
	g.asked = nil
	c.retention.pending = true
	c.clocks.wake(g)
	c.updateQuorum(g)
	c.markDirty(g)
}

// stopState holds the reason why a replica has stepped aside, if it has.
type stopState struct {
	stopped sharding.StopReason
	failed  bool     // raft panicked; it is not called again
	asked   []uint64 // voters that were asked to take over the leadership
}

// reset resets the state for a new generation.
func (a *stopState) reset() { a.stopped, a.asked = sharding.NotStopped, nil }

// isDisabled reports whether the replica sends nothing: it is damaged and does not
// lead.
func (g *group) isDisabled() bool {
	return g.failed || g.stopped == sharding.StopDamaged && g.raw.BasicStatus().RaftState != raft.StateLeader
}

// canVote reports whether the replica may vote, according to the membership
// that it knows.
func (g *group) canVote() bool {
	return g.stopped == sharding.NotStopped || g.stopped == sharding.StopUnsupported && !g.isSoleVoter()
}

// acceptsMessage reports whether a stopped replica accepts a message.
func (c *Core) acceptsMessage(g *group, m *pb.Message) bool {
	t := m.GetType()
	switch {
	case g.stopped == sharding.NotStopped:
		return true
	case t == pb.MsgTimeoutNow:
		return false
	case g.stopped == sharding.StopUnsupported:
		return t != pb.MsgApp || len(m.GetEntries()) == 0 || c.stopped.bytes() < c.opts.RetainTotalBytes
	case g.isDisabled():
		return false
	}
	// The replica is transferring its leadership, and the successor must report
	// its progress before it campaigns.
	if m.GetTerm() > g.term {
		c.stepDown(g)
		return false
	}
	return t == pb.MsgAppResp || t == pb.MsgHeartbeatResp
}

// stoppedGroups are the groups whose state machine has stopped.
type stoppedGroups struct {
	groups   []*group
	failures []failure // panics of raft that are not reported yet
}

func (s *stoppedGroups) remove(g *group) {
	s.groups = slices.DeleteFunc(s.groups, func(o *group) bool { return o == g })
}

// bytes returns the memory used by the logs of the stopped groups.
func (s *stoppedGroups) bytes() (n int64) {
	for _, g := range s.groups {
		n += g.log.Bytes()
	}
	return n
}

// takeFailures returns the failures since the last call.
func (s *stoppedGroups) takeFailures() []failure {
	out := s.failures
	s.failures = nil
	return out
}

// tickStopped handles a tick of a stopped replica. Raft's own tick could start
// a campaign.
func (c *Core) tickStopped(g *group) {
	c.mail.flush(g)
	if g.raw.BasicStatus().RaftState == raft.StateLeader {
		if !g.isSoleVoter() {
			c.transferAway(g)
		}
		g.node().Tick()
		c.markDirty(g)
		return
	}
	if g.isDisabled() {
		c.clocks.stop(g)
		return
	}
	// After an election timeout without a message from its leader, the replica may
	// vote for another candidate.
	if g.unheard++; g.unheard >= c.opts.ElectionTicks && g.lead != raft.None {
		_ = g.node().ForgetLeader()
		c.markDirty(g)
	}
}

// transferAway transfers the leadership to the most advanced voter on an alive
// node. If the transfer does not succeed within an election timeout, the next
// voter is asked. If no voter is left, the replica steps down.
func (c *Core) transferAway(g *group) {
	if g.raw.BasicStatus().LeadTransferee != raft.None {
		return
	}
	var heirs []uint64
	ahead := map[uint64]uint64{}
	g.node().WithProgress(func(id uint64, kind raft.ProgressType, p tracker.Progress) {
		if id != g.replica && kind == raft.ProgressTypePeer && p.Match > 0 && g.routes.IsAlive(id) && !slices.Contains(g.asked, id) {
			heirs = append(heirs, id)
			ahead[id] = p.Match
		}
	})
	if len(heirs) > 0 {
		heir := slices.MinFunc(heirs, func(a, b uint64) int { return cmp.Or(cmp.Compare(ahead[b], ahead[a]), cmp.Compare(a, b)) })
		g.asked = append(g.asked, heir)
		g.node().TransferLeader(heir)
		return
	}
	g.asked = nil
	c.stepDown(g)
	for _, id := range g.others() {
		c.mail.sendNote(g, wire.NoteWake, id) // a leader does not send a wake note
	}
}

// others returns the other members, each once.
func (g *group) others() (ids []uint64) {
	for _, list := range g.memberLists() {
		for _, id := range list {
			if id != g.replica && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// failure is a call of Options.OnGroupFailed.
type failure struct {
	Shard sharding.ShardID
	Err   error
}

// recoverPanic recovers from a panic of raft and is deferred around every call into
// a group's raft. The panic fails only that group: it leaves every structure,
// keeps its state in the log, and counts as stopped on damage. Without
// Options.OnGroupFailed the panic propagates.
func (c *Core) recoverPanic(g *group) {
	if c.opts.OnGroupFailed == nil {
		return
	}
	if r := recover(); r != nil {
		c.fail(g, fmt.Errorf("raft: %v", r))
		c.opts.Logger.Error("a raft group failed", "shard_id", uint64(g.shard), "replica_id", g.replica, "error", fmt.Sprint(r), "stack", string(debug.Stack()))
	}
}

// fail removes a group from service until the process exits. Its raft is not
// called again, because its memory may be inconsistent.
func (c *Core) fail(g *group, err error) {
	if g.failed {
		return
	}
	g.failed = true
	g.steady = steady{}
	c.replicaStopped(StoppedReplica{Shard: g.shard, Generation: g.generation, Reason: sharding.StopDamaged})
	c.clocks.stop(g)
	c.markDirty(g)
	c.stopped.failures = append(c.stopped.failures, failure{g.shard, err})
}

// beginFailed is the turn of a failed group: it reports that it no longer
// leads, and writes the unwritten state that the state machine may have
// applied.
func (c *Core) beginFailed(g *group) {
	if g.leader {
		c.leading--
	}
	if g.leader || g.lead != 0 {
		g.leadership.clear()
		c.turn.Leaders = append(c.turn.Leaders, leaderChange{g.shard, sharding.Term(g.term), 0, false})
	}
	for _, p := range g.proposals {
		c.turn.Dropped = append(c.turn.Dropped, droppedProposal{g.shard, p.fence, p.number, ErrNotLeader})
	}
	g.proposals, g.readyWaits = nil, false
	c.turn.Reads = g.failReads(c.turn.Reads)
	if in := g.transfer.incoming; in != nil && in.Stepped {
		g.transfer.incoming = nil
		c.transfers.discard(in, errReplicaStopped)
	}
	if g.confUnwritten {
		c.turn.MustSync = true
		c.records.add(g, g.unwrittenSection(g.log.Last()))
	}
}

// step passes a message to raft.
func (c *Core) step(g *group, m *pb.Message) {
	defer c.recoverPanic(g)
	// An error means that raft ignored the message, as it should.
	_ = g.node().Step(m)
}

// campaign makes a group campaign, unless raft rejects that.
func (c *Core) campaign(g *group) {
	defer c.recoverPanic(g)
	_ = g.node().Campaign()
	c.markDirty(g)
}
