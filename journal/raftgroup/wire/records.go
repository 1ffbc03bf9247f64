package wire

import (
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
	pb "go.etcd.io/raft/v3/raftpb"
)

// FormerReplica is the last replica of a shard that was removed from a node. It
// is kept forever. The replica ids of a shard increase on a node, so this one
// id is enough to recognize every removed replica and to reject it.
type FormerReplica struct {
	Replica    sharding.ReplicaID
	Generation uint32
}

// Former maps shards to their last removed replica.
type Former map[sharding.ShardID]FormerReplica

// BeginCheckpoint appends the start of a checkpoint. One image per group
// follows, then EndCheckpoint.
func BeginCheckpoint(b []byte, watermark uint64, groups int) []byte {
	b = append(b, checkpointVersion)
	b = le.AppendUint64(b, watermark)
	return le.AppendUint32(b, uint32(groups))
}

// EndCheckpoint appends the end of a checkpoint.
func EndCheckpoint(b []byte, former Former) []byte {
	b = le.AppendUint32(b, uint32(len(former)))
	for _, shard := range slices.Sorted(maps.Keys(former)) {
		f := former[shard]
		b = AppendReplica(b, shard, f.Replica)
		b = le.AppendUint32(b, f.Generation)
	}
	return b
}

// Former reads the part that EndCheckpoint appended.
func (r *Reader) Former(into Former) {
	for n := r.U32(); n > 0 && !r.Bad; n-- {
		shard, f := sharding.ShardID(r.U32()), FormerReplica{sharding.ReplicaID(r.U64()), r.U32()}
		if f.Replica == 0 {
			r.Bad = true
		}
		if !r.Bad {
			into[shard] = f
		}
	}
}

// BeginList appends the start of a record about several replicas.
func BeginList(b []byte, replicas int) []byte {
	return le.AppendUint32(append(b, PayloadVersion), uint32(replicas))
}

// AppendReplica appends the identity of a replica.
func AppendReplica(b []byte, shard sharding.ShardID, replica sharding.ReplicaID) []byte {
	return le.AppendUint64(le.AppendUint32(b, uint32(shard)), uint64(replica))
}

// AppendInstall appends the payload of an install record, which sets a group to
// the image.
func AppendInstall(b []byte, g *GroupImage) []byte {
	b = append(b, PayloadVersion)
	b = le.AppendUint32(b, g.Shard)
	b = le.AppendUint64(b, g.Replica)
	b = le.AppendUint32(b, g.Generation)
	b = appendHard(b, g.Hard)
	b = AppendMembership(b, g.Conf)
	return appendInstallImage(b, g.Install)
}

// NewMembership returns the first membership of a group.
func NewMembership(voters, learners []sharding.ReplicaID) Membership {
	s := &pb.ConfState{AutoLeave: new(false)}
	for _, id := range voters {
		s.Voters = append(s.Voters, uint64(id))
	}
	for _, id := range learners {
		s.Learners = append(s.Learners, uint64(id))
	}
	return Membership{State: s}
}

// ReplicaIDs converts raft's ids.
func ReplicaIDs(ids []uint64) []sharding.ReplicaID {
	out := make([]sharding.ReplicaID, len(ids))
	for i, id := range ids {
		out[i] = sharding.ReplicaID(id)
	}
	return out
}
