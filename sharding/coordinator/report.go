package coordinator

import (
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Report is a node's status report to the coordinator, sent every half second
// and on changes.
type Report struct {
	Node        sharding.NodeID
	Incarnation uint64
	// Seq numbers the node's reports of this incarnation. A report is ignored
	// if its Seq is not higher than the last Seq.
	Seq uint64
	// View is the index of the metadata view of the last pass in which the node
	// ran Converge for all shards that it leads. View is read before the
	// statuses in Shards, and is 0 before the first pass.
	View uint64
	// Shards are the node's replicas for which MustReport is true.
	Shards []ShardReport
	// Replicas is the total number of replicas on the node.
	Replicas uint32
	// Draining says that the node is about to stop and wants to lead nothing.
	Draining bool
	// Pace is the duration of a step of the node's raft loop: the greater of
	// the moving averages of log sync time and tick delay.
	Pace time.Duration
	// Full says that the node's disk is full. The node should lead nothing and be
	// given no replicas, but its existing replicas still vote.
	Full bool
	// Reachable are the members that the node can reach, including itself.
	// Reachable is empty in reports of releases that do not send it.
	Reachable []sharding.NodeID
}

// ShardReport describes one replica on the reporting node.
type ShardReport struct {
	Shard   sharding.ShardID
	Replica sharding.ReplicaID
	Term    sharding.Term
	Leader  bool
	// Commit, Applied and Last are indexes of the replica's log.
	Commit, Applied, Last uint64
	// The membership as the replica has applied it, and the match index of each
	// member. Only leaders need to set these fields.
	Voters, Learners, Outgoing []sharding.ReplicaID
	Match                      map[sharding.ReplicaID]uint64
	// Stopped is set if the replica has stopped.
	Stopped sharding.StopReason
	// Disputed means that the replica's rows differ from those of another replica,
	// and that it serves no requests. For display only.
	Disputed bool
}

// MustReport reports whether a node's report must include its replica of the
// shard. It must if the node leads the shard, and while any replica of the
// shard is leaving, because that replica may only go after all remaining voters
// know of its removal. Stopped replicas are always included.
func MustReport(p meta.Placement, leads bool) bool {
	return leads || len(p.IDs(meta.ReplicaLeaving)) > 0
}

// Transfer requests that node From transfers leadership of the shard to node
// To.
type Transfer struct {
	Shard    sharding.ShardID
	From, To sharding.NodeID
}

// IsCaughtUp reports whether a replica whose log matches the leader's up to
// match may become a voter. The replica may lag behind the commit index by at
// most a sixteenth of the index and at most 128 entries, which a working
// replica catches up within a round trip or two. IsCaughtUp returns false for a
// replica that has never answered.
func IsCaughtUp(match, commit uint64) bool {
	return match > 0 && match+min(commit/16, 128) >= commit
}
