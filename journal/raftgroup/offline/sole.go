package offline

import (
	"errors"
	"fmt"
	"slices"

	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// ErrNoReplica: the node holds no replica of the shard.
var ErrNoReplica = errors.New("raftgroup: no replica of the shard on this node")

// soleTerms is how far a replica that is made the only voter goes above the term
// that it knows: beyond all that the members which are given up can have led in
// without it.
const soleTerms = 1 << 20

// Sole is a replica that MakeSole made the only member of its group.
type Sole struct {
	Replica sharding.ReplicaID
	// Term and Index are those of the last entry that the replica had; all up to
	// it is committed now.
	Term  sharding.Term
	Index uint64
	// Given up are the members that there were beside it.
	GivenUp []sharding.ReplicaID
}

// MakeSole makes a stopped node's replica the only member of its group, whoever
// voted in it before, for a group whose majority is gone for good. What only the
// others had is lost, and should a majority of them run again, the group would be
// there twice: what prevents that is the caller's.
//
// The change of members is in the log as any other is, as entries behind the last
// one, so that replicas that are built later have it too; note is in the entry,
// and is logged by each replica that applies it. It returns when that is durable.
// A replica that is alone already is left as it is. The log was recovered as rec,
// which cannot be used afterwards.
func MakeSole(rec *recovery.Recovered, log Log, shard sharding.ShardID, note string) (Sole, error) {
	r := rec.Replica(shard)
	if r == nil {
		return Sole{}, fmt.Errorf("shard %d: %w", shard, ErrNoReplica)
	}
	if len(note) > wire.MaxNote {
		return Sole{}, errors.New("raftgroup: the note is too long")
	}
	last := r.Log.Last()
	term, err := r.Log.Term(last)
	if err != nil {
		return Sole{}, err
	}
	s := Sole{Replica: r.Replica, Term: sharding.Term(term), Index: last}
	state, err := r.MembersAt(last)
	if err != nil {
		return s, err
	}
	if last == 0 {
		return s, fmt.Errorf("raftgroup: replica %d of shard %d has nothing yet", r.Replica, shard)
	}
	next := &wire.Section{Shard: uint32(shard), Replica: uint64(r.Replica), First: last + 1}
	if s.GivenUp, err = removeOthers(next, max(r.Hard.Term, term)+soleTerms, state, note); err != nil || len(next.Ents) == 0 {
		return s, err
	}
	w := open(rec, log)
	if _, err := log.Append(wire.KindTurn, wire.AppendSection([]byte{wire.PayloadVersion}, next)); err != nil {
		return s, err
	}
	return s, w.sync()
}

// removeOthers fills the section with the entries that lead from the members to the
// replica alone, and returns those that go.
func removeOthers(s *wire.Section, term uint64, state *pb.ConfState, note string) (gone []sharding.ReplicaID, err error) {
	var changes []*pb.ConfChangeSingle
	one := func(kind pb.ConfChangeType, id uint64) {
		changes = append(changes, &pb.ConfChangeSingle{Type: kind.Enum(), NodeId: new(id)})
	}
	members := slices.Concat(state.GetVoters(), state.GetLearners(), state.GetVotersOutgoing(), state.GetLearnersNext())
	slices.Sort(members)
	for _, id := range slices.Compact(members) {
		if id != s.Replica {
			one(pb.ConfChangeRemoveNode, id)
			gone = append(gone, sharding.ReplicaID(id))
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	if !slices.Contains(state.GetVoters(), s.Replica) {
		one(pb.ConfChangeAddNode, s.Replica)
	}
	steps := []*pb.ConfChangeV2{{Transition: pb.ConfChangeTransitionJointExplicit.Enum(), Changes: changes, Context: []byte(note)}, {}}
	if len(state.GetVotersOutgoing()) > 0 { // what is under way ends first
		steps = append([]*pb.ConfChangeV2{{}}, steps...)
	}
	for _, c := range steps {
		if state, err = recovery.Changed(s.Replica, state, c); err != nil {
			return nil, err
		}
		data, err := proto.Marshal(c)
		if err != nil {
			return nil, err
		}
		s.Ents = append(s.Ents, &pb.Entry{Term: new(term), Index: new(s.First + uint64(len(s.Ents))), Type: pb.EntryConfChangeV2.Enum(), Data: data})
	}
	last := s.First + uint64(len(s.Ents)) - 1
	s.Hard = &wire.HardState{Term: term, Commit: last}
	s.Conf = &wire.Membership{Index: last, State: state}
	return gone, nil
}
