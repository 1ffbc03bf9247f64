package raftgroup

import (
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// logState is the state of raft in a group, and how much of it is in the log.
// Unwritten parts go into the group's next section. written changes only when a
// record that contains the change was appended.
type logState struct {
	hard          wire.HardState
	conf          wire.Membership
	hardUnwritten bool
	hardOut       wire.HardState // hard state in the section of this turn
	confUnwritten bool
	written       wire.GroupImage
}

// setHardState stores raft's new hard state, which is written with the next section. It
// reports whether term or vote changed.
func (r *logState) setHardState(hs *pb.HardState) (termOrVote bool) {
	if hs == nil || raft.IsEmptyHardState(hs) {
		return false
	}
	h := wire.NewHardState(hs)
	termOrVote = h.Term != r.hard.Term || h.Vote != r.hard.Vote
	r.hard, r.hardUnwritten = h, true
	return termOrVote
}

// section returns the unwritten state of the group, with the entries of its
// raft.Ready.
func (r *logState) section(ents []*pb.Entry) wire.Section {
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

// unwrittenSection returns a section of the unwritten state, without entries, for a
// group whose log ends at last.
func (r *logState) unwrittenSection(last uint64) wire.Section {
	s := r.section(nil)
	if s.Hard != nil {
		s.Hard.Commit = min(s.Hard.Commit, last)
	}
	return s
}

// onAppended updates the written state after a record with the section was
// appended.
func (r *logState) onAppended(s *wire.Section) {
	if s.Hard != nil {
		r.written.Hard = *s.Hard
		r.hardUnwritten = *s.Hard != r.hard
	}
	if s.Conf != nil {
		r.written.Conf, r.confUnwritten = *s.Conf, false
	}
}

// onInstalled updates the written state after an install record was appended.
func (r *logState) onInstalled(image wire.GroupImage) {
	r.written = image
	r.hardUnwritten, r.confUnwritten = r.hard != image.Hard, false
}

// reach tracks which members of a group are reachable.
type reach struct {
	routes *routes
	// quorum is set if the alive nodes are a quorum of the voters. reportedQuorum
	// is the last reported value; it is valid if quorumReported is set.
	quorum, reportedQuorum, quorumReported bool
	unlocated                              bool // the node of a voter is unknown
}

// takeQuorumReport reports whether the quorum has to be reported, and marks it as
// reported.
func (r *reach) takeQuorumReport() bool {
	due := !r.quorumReported || r.reportedQuorum != r.quorum
	r.quorumReported, r.reportedQuorum = true, r.quorum
	return due
}

// leadership is the leadership as last reported. Proposals and reads reach raft
// only while this replica leads; raft itself rejects proposals that arrive after it
// lost the leadership.
type leadership struct {
	term, lead uint64
	leader     bool
	readable   bool // an entry of its term is committed
}

// clear sets the state of a replica that neither leads nor knows a leader.
func (l *leadership) clear() { l.lead, l.leader, l.readable = 0, false, false }
