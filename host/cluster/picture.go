package cluster

import (
	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
)

// Picture is the whole cluster as the coordinator last told it: half a second
// old, or older while there is no coordinator. It is never modified.
type Picture struct {
	Shards map[sharding.ShardID]ShardState
	Nodes  map[sharding.NodeID]NodeState
}

// ShardState is a shard as its leader reported it.
type ShardState struct {
	Leader           sharding.NodeID // empty while none is known
	Term             sharding.Term
	Voters, Learners []sharding.ReplicaID
	Entities         uint64
	Applied          uint64
	Bytes            uint64
}

// NodeState is a node as it reported.
type NodeState struct {
	Reachable bool
	Replicas  uint32
	Draining  bool // it wants to lead nothing
}

func pictureOf(r *peerv1.ReportResponse) *Picture {
	p := &Picture{
		Shards: make(map[sharding.ShardID]ShardState, len(r.GetShards())),
		Nodes:  make(map[sharding.NodeID]NodeState, len(r.GetNodes())),
	}
	for _, s := range r.GetShards() {
		p.Shards[sharding.ShardID(s.GetShardId())] = ShardState{
			Leader: sharding.NodeID(s.GetLeader()), Term: sharding.Term(s.GetTerm()),
			Voters: replicas(s.GetVoters()), Learners: replicas(s.GetLearners()),
			Entities: s.GetEntities(), Applied: s.GetApplied(), Bytes: s.GetBytes(),
		}
	}
	for _, n := range r.GetNodes() {
		p.Nodes[sharding.NodeID(n.GetNodeId())] = NodeState{Reachable: n.GetReachable(), Replicas: n.GetReplicas(), Draining: n.GetDraining()}
	}
	return p
}
