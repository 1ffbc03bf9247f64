package raftgroup

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Remains is what the log of a stopped node records of a replica.
type Remains struct {
	Shard   sharding.ShardID
	Replica sharding.ReplicaID
	Term    sharding.Term
	// Index is how far the log knows its entries to be committed; the members
	// are as of it. More may have been committed.
	Index                      uint64
	Voters, Learners, Outgoing []sharding.ReplicaID
	// First are the group's first voters; empty where the log has forgotten
	// them.
	First []sharding.ReplicaID
}

// Remains describes every replica of the node, by shard.
func (r *Recovered) Remains() ([]Remains, error) {
	out := make([]Remains, 0, len(r.groups))
	for i, g := range r.groups {
		state, err := g.members()
		if err != nil {
			return nil, err
		}
		out = append(out, Remains{
			Shard: g.shard, Replica: sharding.ReplicaID(g.replica), Term: sharding.Term(g.hard.term), Index: max(g.hard.commit, g.conf.index),
			Voters: replicas(state.GetVoters()), Learners: replicas(state.GetLearners()), Outgoing: replicas(state.GetVotersOutgoing()),
			First: r.first[i],
		})
	}
	return out, nil
}

// Removed is the highest id of a replica that was removed from the node, 0 for
// none.
func (r *Recovered) Removed() (highest sharding.ReplicaID) {
	for _, f := range r.former {
		highest = max(highest, f.replica)
	}
	return highest
}

// members is the membership as of the commit: changes behind the recorded one
// that are committed are carried out.
func (g *group) members() (*pb.ConfState, error) {
	state := g.conf.state
	for _, e := range g.log.ents {
		if e.GetType() == pb.EntryNormal || e.GetIndex() <= g.conf.index || e.GetIndex() > g.hard.commit {
			continue
		}
		change := &pb.ConfChangeV2{}
		if err := proto.Unmarshal(e.GetData(), change); err != nil {
			return nil, fmt.Errorf("%w: shard %d: membership change at index %d: %w", errRecovery, g.shard, e.GetIndex(), err)
		}
		var err error
		if state, err = changed(g.replica, state, change); err != nil {
			return nil, fmt.Errorf("%w: shard %d: membership change at index %d: %w", errRecovery, g.shard, e.GetIndex(), err)
		}
	}
	return state, nil
}

// changed is the membership after a change, as raft judges it.
func changed(self uint64, state *pb.ConfState, change *pb.ConfChangeV2) (next *pb.ConfState, err error) {
	storage := raft.NewMemoryStorage()
	if err := storage.ApplySnapshot(snapshotOf(1, 1, state)); err != nil {
		return nil, err
	}
	node, err := raft.NewRawNode(&raft.Config{
		ID: self, ElectionTick: 10, HeartbeatTick: 1, Storage: storage, MaxSizePerMsg: 1, MaxInflightMsgs: 1,
		Logger: newRaftLogger(slog.New(slog.DiscardHandler), 0),
	})
	if err != nil {
		return nil, err
	}
	defer func() { // raft panics at a change that does not fit
		if r := recover(); r != nil {
			err = fmt.Errorf("it does not fit the members")
		}
	}()
	return node.ApplyConfChange(change), nil
}

// Entries returns the entries of a shard that the log holds, committed or not:
// those behind the cut, in order. They are shared with the Recovered.
func (r *Recovered) Entries(shard sharding.ShardID) []journal.Committed {
	i := slices.IndexFunc(r.groups, func(g *group) bool { return g.shard == shard })
	if i < 0 {
		return nil
	}
	var out []journal.Committed
	for _, e := range r.groups[i].log.ents {
		c := journal.Committed{Index: e.GetIndex(), Term: sharding.Term(e.GetTerm())}
		if e.GetType() == pb.EntryNormal {
			c.Data = e.GetData()
		}
		out = append(out, c)
	}
	return out
}
