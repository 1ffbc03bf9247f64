package raftgroup

import (
	"github.com/hostd/hostd/journal/raftgroup/nodes"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// recorded is what raft is at in a group, and what of that the log has: what is
// marked unwritten goes into the group's next section. written changes only
// when a record that says so was appended.
type recorded struct {
	hard          wire.HardState
	conf          wire.Membership
	hardUnwritten bool
	hardOut       wire.HardState // of the section in the turn
	confUnwritten bool
	written       wire.GroupImage
}

// note takes raft's new hard state; it is written with the next section.
func (r *recorded) note(hs *pb.HardState) (termOrVote bool) {
	if hs == nil || raft.IsEmptyHardState(hs) {
		return false
	}
	h := wire.HardOf(hs)
	termOrVote = h.Term != r.hard.Term || h.Vote != r.hard.Vote
	r.hard, r.hardUnwritten = h, true
	return termOrVote
}

// section is what has to be written of the group, with entries of its ready.
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

// unwritten is the section of what is known and not written yet of a group whose
// log ends at last, its entries apart.
func (r *recorded) unwritten(last uint64) wire.Section {
	s := r.section(nil)
	if s.Hard != nil {
		s.Hard.Commit = min(s.Hard.Commit, last)
	}
	return s
}

// appended follows a record with the section.
func (r *recorded) appended(s *wire.Section) {
	if s.Hard != nil {
		r.written.Hard = *s.Hard
		r.hardUnwritten = *s.Hard != r.hard
	}
	if s.Conf != nil {
		r.written.Conf, r.confUnwritten = *s.Conf, false
	}
}

// installed follows a record that makes the group what the image says.
func (r *recorded) installed(image wire.GroupImage) {
	r.written = image
	r.hardUnwritten, r.confUnwritten = r.hard != image.Hard, false
}

// reach is which members of a group can be reached.
type reach struct {
	routes *nodes.Routes
	// quorum: the nodes heard are a quorum of the voters; toldQuorum is what was
	// last reported of it, if anything was.
	quorum, toldQuorum, told bool
	unlocated                bool // a voter's node is not known
}

// report says whether the quorum is to be reported, and takes it for reported.
func (r *reach) report() bool {
	due := !r.told || r.toldQuorum != r.quorum
	r.told, r.toldQuorum = true, r.quorum
	return due
}

// leadership is as last reported. Only while it is this replica's do proposals
// and reads reach raft; raft itself refuses what comes after it lost it.
type leadership struct {
	term, lead uint64
	leader     bool
	readable   bool // an entry of its term is committed
}

// end is what a replica reports that leads no more and knows of nobody who does.
func (l *leadership) end() { l.lead, l.leader, l.readable = 0, false, false }
