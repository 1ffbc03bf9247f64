package raftgroup

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/election"
	"github.com/hostd/hostd/journal/raftgroup/raftlog"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// group is one replica of one shard.
type group struct {
	shard   sharding.ShardID
	replica uint64
	// raw is raft's state without the changes made in the steady state. node()
	// brings raft up to date and returns it.
	raw   *raft.RawNode
	log   *raftlog.Log
	shown shown // the part of the log that raft sees

	logState
	rewrite     bool
	applied     uint64
	truncatable bool // log may be truncated further, now or when more entries are durable
	// generation numbers the successive copies of the shard's data on this
	// node. install is the snapshot that this generation started from, until
	// the state machine no longer needs it.
	generation uint32
	install    wire.InstallImage
	transfer   groupTransfers
	// removed means that this node no longer holds the replica.
	removed bool

	leadership
	stopState
	// campaign is set if this replica is the only voter and should become
	// leader at once.
	campaign bool

	sleeping

	reach
	candidacy election.Candidacy

	delayed delayed
	steady  steady

	proposals       []proposal
	transferPending bool // a leadership transfer may be in progress
	reads           readQueue

	dirty bool
	// ready is the raft.Ready being processed. readyWaits means that it was
	// taken from raft but waits for the next turn.
	ready      raft.Ready
	readyWaits bool

	loss lossDetector
}

type proposal struct { // not in raft's log yet
	fence  sharding.Term
	number uint64
	entry  *pb.Entry
}

// isAlone reports whether the group has no other member, current or outgoing.
func (g *group) isAlone() bool {
	s := g.conf.State
	return g.isSoleVoter() && len(s.GetLearners()) == 0 && len(s.GetLearnersNext()) == 0
}

func (g *group) isSoleVoter() bool {
	s := g.conf.State
	return len(s.GetVoters()) == 1 && s.GetVoters()[0] == g.replica && len(s.GetVotersOutgoing()) == 0
}

func (g *group) isJoint() bool { return len(g.conf.State.GetVotersOutgoing()) > 0 }

func newGroup(shard sharding.ShardID, replica uint64) *group {
	return &group{shard: shard, replica: replica, log: raftlog.New(0, 0), logState: logState{written: wire.GroupImage{Shard: uint32(shard), Replica: replica}}}
}

// newRecoveredGroup builds a group from the log's record of the group.
func newRecoveredGroup(r *recovery.Replica) *group {
	return &group{
		shard: r.Shard, replica: uint64(r.Replica), log: r.Log, logState: logState{hard: r.Hard, conf: r.Image.Conf, written: r.Image},
		generation: r.Generation, install: r.Image.Install,
	}
}

// newNode starts raft from the recovered state.
func (g *group) newNode(o *Options, applied uint64, describe func() (*pb.Snapshot, error)) error {
	last := g.log.Last()
	if applied < g.log.TruncatedIndex() {
		return fmt.Errorf("%w: shard %d: the state machine is at index %d, the log begins after %d", recovery.ErrContradiction, g.shard, applied, g.log.TruncatedIndex())
	}
	if applied > last || g.hard.Commit > last {
		return fmt.Errorf("%w: shard %d: the log ends at index %d, but index %d was applied and index %d committed", recovery.ErrContradiction, g.shard, last, applied, g.hard.Commit)
	}
	// Applied and truncated entries were committed. The term of an entry was known
	// before the entry was written, even if the record of the hard state was not
	// due yet.
	g.hard.Commit = max(g.hard.Commit, applied)
	if term, _ := g.log.Term(last); term > g.hard.Term {
		g.hard.Term, g.hard.Vote = term, 0
	}
	g.hardUnwritten = g.hard != g.written.Hard
	g.applied, g.truncatable = applied, true
	g.term = g.hard.Term
	g.log.Start(g.hard.Proto(), g.conf.State, describe)
	g.shown = shown{Log: g.log}
	node, err := raft.NewRawNode(&raft.Config{
		ID:                        g.replica,
		ElectionTick:              o.ElectionTicks,
		HeartbeatTick:             o.HeartbeatTicks,
		Storage:                   &g.shown,
		Applied:                   applied,
		MaxSizePerMsg:             o.MaxMessageBytes,
		MaxCommittedSizePerReady:  o.MaxApplyBytes,
		MaxUncommittedEntriesSize: o.MaxUncommittedBytes,
		MaxInflightMsgs:           o.MaxInflightMessages,
		MaxInflightBytes:          o.MaxInflightBytes,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		Logger:                    raftlog.Lines(o.Logger, uint32(g.shard)),
	})
	if err != nil {
		return fmt.Errorf("start shard %d: %w", g.shard, err)
	}
	g.raw = node
	return nil
}

// membership returns the first membership of the group.
func (c GroupConfig) membership() wire.Membership { return wire.NewMembership(c.Voters, c.Learners) }

// Validate checks the ids of a new group.
func (c GroupConfig) Validate() error {
	if c.Replica == 0 || len(c.Voters) == 0 || len(c.Voters)+len(c.Learners) > wire.MaxMembers {
		return fmt.Errorf("create shard %d: invalid replica %d, or invalid members: %d voters and %d learners", c.Shard, c.Replica, len(c.Voters), len(c.Learners))
	}
	seen := map[sharding.ReplicaID]bool{0: true}
	for _, id := range slices.Concat(c.Voters, c.Learners) {
		if seen[id] || raft.IsLocalMsgTarget(uint64(id)) {
			return fmt.Errorf("create shard %d: replica id %d is reserved or duplicated", c.Shard, id)
		}
		seen[id] = true
	}
	return nil
}
