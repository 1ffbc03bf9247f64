package raftgroup

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/election"
	"github.com/hostd/hostd/journal/raftgroup/raftlog"
	"github.com/hostd/hostd/journal/raftgroup/reads"
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
	node    *raft.RawNode
	log     *raftlog.Log

	recorded
	rewrite bool
	applied uint64
	uncut   bool // the log may be cut further, now or when more is durable
	// generation numbers the runs of the shard's data on this node; install is the
	// snapshot this one began with, until the state machine needs it no more.
	generation uint32
	install    wire.InstallImage
	transfer   transferring
	// removed: it is no replica of this node any more.
	removed bool

	leadership
	aside
	// campaign: the only voter is this replica, and it is to lead at once.
	campaign bool

	sleeping

	reach
	candidacy election.Candidacy

	delayed delayed

	proposals []proposal
	handing   bool // a transfer of leadership may be under way
	reads     reads.Queue

	dirty bool
	// ready is being worked on; held means that it was taken and waits for the
	// next turn.
	ready      raft.Ready
	readyWaits bool
}

type proposal struct { // has not entered raft's log yet
	fence  sharding.Term
	number uint64
	entry  *pb.Entry
}

// alone says whether the group has no other member, present or leaving.
func (g *group) alone() bool {
	s := g.conf.State
	return g.soleVoter() && len(s.GetLearners()) == 0 && len(s.GetLearnersNext()) == 0
}

func (g *group) soleVoter() bool {
	s := g.conf.State
	return len(s.GetVoters()) == 1 && s.GetVoters()[0] == g.replica && len(s.GetVotersOutgoing()) == 0
}

func (g *group) joint() bool { return len(g.conf.State.GetVotersOutgoing()) > 0 }

func newGroup(shard sharding.ShardID, replica uint64) *group {
	return &group{shard: shard, replica: replica, log: raftlog.New(0, 0), recorded: recorded{written: wire.GroupImage{Shard: uint32(shard), Replica: replica}}}
}

// recovered is a group as the log has it.
func recovered(r *recovery.Replica) *group {
	return &group{
		shard: r.Shard, replica: uint64(r.Replica), log: r.Log, recorded: recorded{hard: r.Hard, conf: r.Image.Conf, written: r.Image},
		generation: r.Generation, install: r.Image.Install,
	}
}

// newNode starts raft on what was recovered.
func (g *group) newNode(o *Options, applied uint64, describe func() (*pb.Snapshot, error)) error {
	last := g.log.Last()
	if applied < g.log.Cut() {
		return fmt.Errorf("%w: shard %d: the state machine is at index %d, the log begins behind %d", recovery.ErrContradiction, g.shard, applied, g.log.Cut())
	}
	if applied > last || g.hard.Commit > last {
		return fmt.Errorf("%w: shard %d: the log ends at index %d, %d was applied and %d committed", recovery.ErrContradiction, g.shard, last, applied, g.hard.Commit)
	}
	// What was applied or cut was committed, and an entry's term was known
	// before it was written, even if the record that said so was not due yet.
	g.hard.Commit = max(g.hard.Commit, applied)
	if term, _ := g.log.Term(last); term > g.hard.Term {
		g.hard.Term, g.hard.Vote = term, 0
	}
	g.hardUnwritten = g.hard != g.written.Hard
	g.applied, g.uncut = applied, true
	g.term = g.hard.Term
	g.log.Start(g.hard.Proto(), g.conf.State, describe)
	node, err := raft.NewRawNode(&raft.Config{
		ID:                        g.replica,
		ElectionTick:              o.ElectionTicks,
		HeartbeatTick:             o.HeartbeatTicks,
		Storage:                   g.log,
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
	g.node = node
	return nil
}

// membership is the first one of the group.
func (c GroupConfig) membership() wire.Membership { return wire.NewMembership(c.Voters, c.Learners) }

// Validate checks the ids of a new group.
func (c GroupConfig) Validate() error {
	if c.Replica == 0 || len(c.Voters) == 0 || len(c.Voters)+len(c.Learners) > wire.MaxMembers {
		return fmt.Errorf("create shard %d: replica %d with %d voters and %d learners", c.Shard, c.Replica, len(c.Voters), len(c.Learners))
	}
	seen := map[sharding.ReplicaID]bool{0: true}
	for _, id := range slices.Concat(c.Voters, c.Learners) {
		if seen[id] || raft.IsLocalMsgTarget(uint64(id)) {
			return fmt.Errorf("create shard %d: replica id %d is reserved or twice in it", c.Shard, id)
		}
		seen[id] = true
	}
	return nil
}
