package recovery

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/raftgroup/raftlog"
	"github.com/hostd/hostd/journal/raftgroup/snapdir"
	"github.com/hostd/hostd/journal/raftgroup/wire"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Replica returns the node's replica of a shard, or nil.
func (r *Recovered) Replica(shard sharding.ShardID) *Replica {
	i := slices.IndexFunc(r.Groups, func(g Replica) bool { return g.Shard == shard })
	if i < 0 {
		return nil
	}
	return &r.Groups[i]
}

// Generations returns the current generation of every shard that has or had a
// replica on this node. The state machine needs this before it opens its store.
// dir holds the snapshots that the state machine may have to read.
func (r *Recovered) Generations(fsys disk.FS, dir string) []statefile.Generation {
	files := snapdir.New(fsys, dir, nil, slog.New(slog.DiscardHandler))
	var out []statefile.Generation
	for i := range r.Groups {
		g := &r.Groups[i]
		out = append(out, statefile.Generation{Shard: g.Shard, Generation: g.Generation, Install: g.install(files)})
	}
	for _, shard := range slices.Sorted(maps.Keys(r.Former)) {
		if !slices.ContainsFunc(r.Groups, func(g Replica) bool { return g.Shard == shard }) {
			out = append(out, statefile.Generation{Shard: shard, Generation: r.Former[shard].Generation + 1, Gone: true})
		}
	}
	return out
}

// File returns the name of the snapshot file that the replica's generation
// began with, or "" if the state machine does not need it.
func (r *Replica) File() string {
	if r.Image.Install.Index == 0 {
		return ""
	}
	return snapdir.Name(r.Shard, r.Replica, r.Image.Install.Digest)
}

// install returns the snapshot that the group's generation began with, for the
// state machine.
func (r *Replica) install(files *snapdir.Dir) *statefile.Install {
	image := r.Image.Install
	if image.Index == 0 {
		return nil
	}
	name := r.File()
	return &statefile.Install{
		Index: image.Index, Term: sharding.Term(image.Term), Digest: image.Digest,
		Open: func() (io.ReadCloser, error) { return files.Open(name) },
	}
}

// ReplicaInfo describes a replica in the log of a stopped node.
type ReplicaInfo struct {
	Shard   sharding.ShardID
	Replica sharding.ReplicaID
	Term    sharding.Term
	// Index is the highest index that is known from the log to be committed.
	// The members are the group's members at that index. Later entries may have
	// been committed too.
	Index                      uint64
	Voters, Learners, Outgoing []sharding.ReplicaID
	// First are the group's first voters, empty if the log no longer contains
	// them.
	First []sharding.ReplicaID
}

// Replicas describes every replica of the node, sorted by shard.
func (r *Recovered) Replicas() ([]ReplicaInfo, error) {
	out := make([]ReplicaInfo, 0, len(r.Groups))
	for i := range r.Groups {
		g := &r.Groups[i]
		state, err := g.MembersAt(g.Hard.Commit)
		if err != nil {
			return nil, err
		}
		out = append(out, ReplicaInfo{
			Shard: g.Shard, Replica: g.Replica, Term: g.Term, Index: max(g.Hard.Commit, g.Image.Conf.Index),
			Voters: wire.ReplicaIDs(state.GetVoters()), Learners: wire.ReplicaIDs(state.GetLearners()), Outgoing: wire.ReplicaIDs(state.GetVotersOutgoing()),
			First: g.First,
		})
	}
	return out, nil
}

// HighestRemoved returns the highest id of a replica that was removed from the node, 0
// for none.
func (r *Recovered) HighestRemoved() (highest sharding.ReplicaID) {
	for _, f := range r.Former {
		highest = max(highest, f.Replica)
	}
	return highest
}

// MembersAt returns the membership as of a log index: it applies the changes
// after the recorded membership up to index.
func (r *Replica) MembersAt(index uint64) (*pb.ConfState, error) {
	state := r.Image.Conf.State
	for _, e := range r.Log.All() {
		if e.GetType() == pb.EntryNormal || e.GetIndex() <= r.Image.Conf.Index || e.GetIndex() > index {
			continue
		}
		change := &pb.ConfChangeV2{}
		if err := proto.Unmarshal(e.GetData(), change); err != nil {
			return nil, fmt.Errorf("%w: shard %d: membership change at index %d: %w", ErrContradiction, r.Shard, e.GetIndex(), err)
		}
		var err error
		if state, err = ApplyChange(uint64(r.Replica), state, change); err != nil {
			return nil, fmt.Errorf("%w: shard %d: membership change at index %d: %w", ErrContradiction, r.Shard, e.GetIndex(), err)
		}
	}
	return state, nil
}

// ApplyChange returns the membership after a change, as raft computes it.
func ApplyChange(self uint64, state *pb.ConfState, change *pb.ConfChangeV2) (next *pb.ConfState, err error) {
	storage := raft.NewMemoryStorage()
	if err := storage.ApplySnapshot(wire.SnapshotOf(1, 1, state)); err != nil {
		return nil, err
	}
	node, err := raft.NewRawNode(&raft.Config{
		ID: self, ElectionTick: 10, HeartbeatTick: 1, Storage: storage, MaxSizePerMsg: 1, MaxInflightMsgs: 1,
		Logger: raftlog.Lines(slog.New(slog.DiscardHandler), 0),
	})
	if err != nil {
		return nil, err
	}
	defer func() { // raft panics if a change does not fit
		if r := recover(); r != nil {
			err = fmt.Errorf("the change is not valid for the current members")
		}
	}()
	return node.ApplyConfChange(change), nil
}

// Entries returns all entries of a shard in the log, committed or not, in
// order. They are shared with the Recovered.
func (r *Recovered) Entries(shard sharding.ShardID) []journal.Committed {
	g := r.Replica(shard)
	if g == nil {
		return nil
	}
	var out []journal.Committed
	for _, e := range g.Log.All() {
		c := journal.Committed{Index: e.GetIndex(), Term: sharding.Term(e.GetTerm())}
		if e.GetType() == pb.EntryNormal {
			c.Data = e.GetData()
		}
		out = append(out, c)
	}
	return out
}

// FindUndecodable calls found for each entry of the log, committed or not, that
// cannot be decoded, by shard and in order: membership changes that
// CheckMembers rejects, and other entries that read rejects.
func (r *Recovered) FindUndecodable(read func(sharding.ShardID, journal.Committed) error, found func(shard sharding.ShardID, index uint64, err error)) {
	for i := range r.Groups {
		g := &r.Groups[i]
		for _, e := range g.Log.All() {
			var err error
			if e.GetType() == pb.EntryNormal {
				err = read(g.Shard, journal.Committed{Index: e.GetIndex(), Term: sharding.Term(e.GetTerm()), Data: e.GetData()})
			} else if err = wire.CheckMembers(e.GetData()); err != nil {
				err = fmt.Errorf("membership change: %w", err)
			}
			if err != nil {
				found(g.Shard, e.GetIndex(), err)
			}
		}
	}
}
