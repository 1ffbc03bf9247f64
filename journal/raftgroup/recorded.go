package raftgroup

import (
	"github.com/hostd/hostd/journal/raftgroup/nodes"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// recorded is the state of raft in a group, and how much of it is in the log.
// Unwritten parts go into the group's next section. written changes only when a
// record that contains the change was appended.
type recorded struct {
	hard          wire.HardState
	conf          wire.Membership
	hardUnwritten bool
	hardOut       wire.HardState // in the section of this turn
	confUnwritten bool
	written       wire.GroupImage
}

// note stores raft's new hard state, which is written with the next section. It
// reports whether term or vote changed.
func (r *recorded) note(hs *pb.HardState) (termOrVote bool) {
	if hs == nil || raft.IsEmptyHardState(hs) {
		return false
	}
	h := wire.HardOf(hs)
	termOrVote = h.Term != r.hard.Term || h.Vote != r.hard.Vote
	r.hard, r.hardUnwritten = h, true
	return termOrVote
}

// section returns the unwritten state of the group, with the entries of its
// raft.Ready.
func (r *recorded) section(ents []*pb.Entry) wire.Section {
	s := wire.Section{Shard: r.written.Shard, Replica: r.written.Replica}
	if r.hardUnwritten {
		r.hardOut = r.hard
		s.Hard = &r.hardOut
	}
	if r.confUnwritten {
		m := r.conf
		s.Conf = &m
	}
	if len(ents) > 0 {
		s.First, s.Ents = ents[0].GetIndex(), ents
	}
	return s
}

// unwritten returns a section of the unwritten state, without entries, for a
// group whose log ends at last.
func (r *recorded) unwritten(last uint64) wire.Section {
	s := r.section(nil)
	if s.Hard != nil {
		s.Hard.Commit = min(s.Hard.Commit, last)
	}
	return s
}

// appended updates the written state after a record with the section was
// appended.
func (r *recorded) appended(s *wire.Section) {
	if s.Hard != nil {
		r.written.Hard = *s.Hard
		r.hardUnwritten = *s.Hard != r.hard
	}
	if s.Conf != nil {
		r.written.Conf, r.confUnwritten = *s.Conf, false
	}
}

// installed updates the written state after an install record was appended.
func (r *recorded) installed(image wire.GroupImage) {
	r.written = image
	r.hardUnwritten, r.confUnwritten = r.hard != image.Hard, false
}

// reach tracks which members of a group are reachable.
type reach struct {
	routes *nodes.Routes
	// quorum: the alive nodes are a quorum of the voters. toldQuorum is the
	// last reported value, valid if told is set.
	quorum, toldQuorum, told bool
	unlocated                bool // a voter's node is unknown
}

// report reports whether the quorum has to be reported, and marks it as
// reported.
func (r *reach) report() bool {
	due := !r.told || r.toldQuorum != r.quorum
	r.told, r.toldQuorum = true, r.quorum
	return due
}

// leadership is the leadership as last reported. Proposals and reads reach raft
// only while this replica leads; raft itself rejects those that arrive after it
// lost the leadership.
type leadership struct {
	term, lead uint64
	leader     bool
	readable   bool // an entry of its term is committed
}

// end sets the state of a replica that neither leads nor knows a leader.
func (l *leadership) end() { l.lead, l.leader, l.readable = 0, false, false }
