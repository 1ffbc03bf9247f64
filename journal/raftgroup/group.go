package raftgroup

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// maxRounds bounds the confirmations of reads under way in a group; reads that
// come meanwhile share the next one.
const maxRounds = 4

// group is one replica of one shard.
type group struct {
	shard   sharding.ShardID
	replica uint64
	node    *raft.RawNode
	log     *entries

	// hard and conf are what raft is at; those marked unwritten go into the
	// group's next section. written is what the log records hold.
	hard          hardState
	conf          membership
	hardUnwritten bool
	hardOut       hardState // of the section in the turn
	confUnwritten bool
	written       groupImage
	// marks say where in the write-ahead log the entries are, see mark.
	marks   []mark
	rewrite bool
	applied uint64
	uncut   bool // the log may be cut further, now or when more is durable
	// generation counts the lives of the shard on this node; install is the
	// snapshot this one began with, until the state machine needs it no more.
	generation uint32
	install    installImage
	incoming   *incoming
	// After failed snapshots no other is sent until the tick.
	failures int
	retryAt  uint64
	holds    []hold
	// removed: it is no replica of this node any more.
	removed bool

	// Leadership as last reported. Only while it is ours do proposals and
	// reads reach raft; raft itself refuses what comes after it lost it.
	term   uint64
	lead   uint64
	leader bool
	// readable: an entry of this leadership's term is committed.
	readable bool
	// campaign: the only voter is this replica, and it is to lead at once.
	campaign bool

	sleeping
	unasked bool // by a planted fault

	routes []route
	// quorum: the nodes heard are a quorum of the voters; toldQuorum is what
	// was last reported of it, if anything was.
	quorum, toldQuorum, told bool
	unlocated                bool // a voter's node is not known
	// hunting: without a leader, and to campaign at a tick; hunts counts how
	// often it did.
	hunting bool
	huntAt  uint64
	hunts   int

	// fresh entries were proposed since the last tick; parked are appends that
	// wait for more of them, at most one for each member.
	fresh  int
	parked []*pb.Message

	proposals []proposal
	handing   bool // a transfer of leadership may be under way
	reads     []uint64
	waiting   int // reads in rounds
	rounds    []round

	dirty bool
	// ready is being worked on; held means that it was taken and waits for the
	// next turn.
	ready raft.Ready
	held  bool
}

type proposal struct {
	fence  sharding.Term
	number uint64
	entry  *pb.Entry
}

// round is one confirmation of leadership and the reads that share it.
type round struct {
	context uint64
	tokens  []uint64
}

// mark says that the entries from first on, up to the next mark's, are in the
// segment of pos or behind it.
type mark struct {
	first uint64
	pos   wal.Position
}

// marked notes that entries from first on were written at pos, in the place of
// any that were there.
func (g *group) marked(first uint64, pos wal.Position) {
	for len(g.marks) > 0 && g.marks[len(g.marks)-1].first >= first {
		g.marks = g.marks[:len(g.marks)-1]
	}
	if n := len(g.marks); n > 0 && g.marks[n-1].pos.Segment == pos.Segment {
		return
	}
	g.marks = append(g.marks, mark{first, pos})
}

// needed returns the position before which no entry behind the cut lies, false
// if there is no such entry.
func (g *group) needed() (wal.Position, bool) {
	for len(g.marks) > 1 && g.marks[1].first <= g.log.cut+1 {
		g.marks = g.marks[1:]
	}
	if g.log.last() == g.log.cut || len(g.marks) == 0 {
		return wal.Position{}, false
	}
	return g.marks[0].pos, true
}

// alone says whether the group has no other member, present or leaving.
func (g *group) alone() bool {
	s := g.conf.state
	return g.soleVoter() && len(s.GetLearners()) == 0 && len(s.GetLearnersNext()) == 0
}

func (g *group) soleVoter() bool {
	s := g.conf.state
	return len(s.GetVoters()) == 1 && s.GetVoters()[0] == g.replica && len(s.GetVotersOutgoing()) == 0
}

func (g *group) joint() bool { return len(g.conf.state.GetVotersOutgoing()) > 0 }

func newGroup(shard sharding.ShardID, replica uint64) *group {
	return &group{shard: shard, replica: replica, log: &entries{}, written: groupImage{shard: uint32(shard), replica: replica}}
}

// newNode starts raft on what was recovered.
func (g *group) newNode(o *Options, applied uint64) error {
	last := g.log.last()
	if applied < g.log.cut {
		return fmt.Errorf("%w: shard %d: the state machine is at index %d, the log begins behind %d", errRecovery, g.shard, applied, g.log.cut)
	}
	if applied > last || g.hard.commit > last {
		return fmt.Errorf("%w: shard %d: the log ends at index %d, %d was applied and %d committed", errRecovery, g.shard, last, applied, g.hard.commit)
	}
	// What was applied or cut was committed, and an entry's term was known
	// before it was written, even if the record that said so was not due yet.
	g.hard.commit = max(g.hard.commit, applied)
	if term, _ := g.log.Term(last); term > g.hard.term {
		g.hard.term, g.hard.vote = term, 0
	}
	g.hardUnwritten = g.hard != g.written.hard
	g.applied, g.uncut = applied, true
	g.term = g.hard.term
	g.log.hard, g.log.conf = g.hard.proto(), g.conf.state
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
		Logger:                    newRaftLogger(o.Logger, uint32(g.shard)),
	})
	if err != nil {
		return fmt.Errorf("start shard %d: %w", g.shard, err)
	}
	g.node = node
	return nil
}

// note takes raft's new hard state; it is written with the next section.
func (g *group) note(hs *pb.HardState) (termOrVote bool) {
	if hs == nil || raft.IsEmptyHardState(hs) {
		return false
	}
	h := hardOf(hs)
	termOrVote = h.term != g.hard.term || h.vote != g.hard.vote
	g.hard, g.hardUnwritten = h, true
	return termOrVote
}

// confirm takes a confirmed round out and returns its reads.
func (g *group) confirm(context uint64) []uint64 {
	i := slices.IndexFunc(g.rounds, func(r round) bool { return r.context == context })
	if i < 0 {
		return nil
	}
	tokens := g.rounds[i].tokens
	g.rounds = slices.Delete(g.rounds, i, i+1)
	g.waiting -= len(tokens)
	return tokens
}

// config is the first membership of a group.
func (c GroupConfig) membership() membership {
	s := &pb.ConfState{AutoLeave: new(false)}
	for _, v := range c.Voters {
		s.Voters = append(s.Voters, uint64(v))
	}
	for _, l := range c.Learners {
		s.Learners = append(s.Learners, uint64(l))
	}
	return membership{state: s}
}

// Validate checks the ids of a new group.
func (c GroupConfig) Validate() error {
	if c.Replica == 0 || len(c.Voters) == 0 || len(c.Voters)+len(c.Learners) > maxMembers {
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
