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
var ErrNoReplica = errors.New("raftgroup: this node has no replica of the shard")

// A replica that becomes the only voter raises its term by soleTerms, so that
// the new term is above any term in which the abandoned members can have
// elected a leader.
const soleTerms = 1 << 20

// Sole describes a replica that MakeSole made the only member of its group.
type Sole struct {
	Replica sharding.ReplicaID
	// Term and Index are the term and index of the replica's last entry. All
	// entries up to that entry are committed now.
	Term  sharding.Term
	Index uint64
	// Removed are the members that were removed: all except the replica.
	Removed []sharding.ReplicaID
}

// MakeSole makes a stopped node's replica the only member of its group, whether
// or not it was a voter. It is for a group that has permanently lost its
// majority. Entries that only the other members had are lost. If a majority of
// the other members ever runs again, the group exists twice; the caller must
// prevent that.
//
// The membership change is written as regular log entries after the last entry,
// so that replicas added later apply it too. note is stored in the entry, and
// each replica that applies it logs the note. MakeSole returns once this is
// durable. A replica that is already alone is left unchanged. The log was
// recovered as rec, which must not be used afterwards.
func MakeSole(rec *recovery.Recovered, log Log, shard sharding.ShardID, note string) (Sole, error) {
	r := rec.Replica(shard)
	if r == nil {
		return Sole{}, fmt.Errorf("shard %d: %w", shard, ErrNoReplica)
	}
	if len(note) > wire.MaxNote {
		return Sole{}, errors.New("raftgroup: the operator's note is too long")
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
		return s, fmt.Errorf("raftgroup: replica %d of shard %d has an empty log", r.Replica, shard)
	}
	next := &wire.Section{Shard: uint32(shard), Replica: uint64(r.Replica), First: last + 1}
	if s.Removed, err = removeOthers(next, max(r.Hard.Term, term)+soleTerms, state, note); err != nil || len(next.Ents) == 0 {
		return s, err
	}
	w := open(rec, log)
	if _, err := log.Append(wire.KindTurn, wire.AppendSection([]byte{wire.PayloadVersion}, next)); err != nil {
		return s, err
	}
	return s, w.sync()
}

// removeOthers fills the section with the entries that reduce the members to
// the replica alone, and returns the removed members.
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
	if len(state.GetVotersOutgoing()) > 0 { // finish the joint change in progress first
		steps = append([]*pb.ConfChangeV2{{}}, steps...)
	}
	for _, c := range steps {
		if state, err = recovery.ApplyChange(s.Replica, state, c); err != nil {
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
