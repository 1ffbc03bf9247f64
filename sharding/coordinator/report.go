package coordinator

import (
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Report is what a node tells the coordinator about itself, every half second
// and at changes.
type Report struct {
	Node        sharding.NodeID
	Incarnation uint64
	// Seq counts the node's reports of this incarnation up. One that is not
	// above the last is passed over.
	Seq uint64
	// View is the index of the metadata view of the last pass in which the node
	// went through Converge for all the shards that it leads. It is read before
	// the statuses that Shards are made of, and 0 before the first pass.
	View uint64
	// Shards are the node's replicas for which Wanted holds.
	Shards []ShardReport
	// Replicas is the number of all replicas on the node.
	Replicas uint32
	// Draining says that the node is about to stop and wants to lead nothing.
	Draining bool
	// Pace is what a step of the node's raft loop takes: the greater of the
	// moving means of a sync of the log and of how late the loop's ticks are.
	Pace time.Duration
	// Full says that the node's disk has no room for more. It wants to lead
	// nothing and to be given no replicas; those that it has vote.
	Full bool
	// Heard are the members that the node hears, itself included. Empty from a
	// release that does not say.
	Heard []sharding.NodeID
}

// ShardReport describes one replica on the reporting node.
type ShardReport struct {
	Shard   sharding.ShardID
	Replica sharding.ReplicaID
	Term    sharding.Term
	Leader  bool
	// Commit, Applied and Last are indexes of the replica's log.
	Commit, Applied, Last uint64
	// The membership as the replica has applied it, and how far each member's
	// log agrees. Only a leader needs to say; the others leave them empty.
	Voters, Learners, Outgoing []sharding.ReplicaID
	Match                      map[sharding.ReplicaID]uint64
	// Stopped says why the replica has stopped, if it has.
	Stopped sharding.StopReason
	// Disputed: it has other rows than another one, and answers nobody. That is
	// for people to see; nothing is decided by it.
	Disputed bool
}

// Wanted says whether the report of a node has to describe its replica of the
// shard: if it leads it, and while a replica is leaving, because that one may
// go only when the voters that stay know of it. One that has stopped is always
// in it.
func Wanted(p meta.Placement, leads bool) bool {
	return leads || len(p.IDs(meta.ReplicaLeaving)) > 0
}

// Transfer asks the node From to hand the leadership of the shard to To.
type Transfer struct {
	Shard    sharding.ShardID
	From, To sharding.NodeID
}

// CaughtUp says whether a log that agrees up to match is near enough to commit
// for its replica to vote: a sixteenth behind, and at most 128 entries, which a
// working replica makes up within a round trip or two. One that never
// answered has not caught up with anything.
func CaughtUp(match, commit uint64) bool {
	return match > 0 && match+min(commit/16, 128) >= commit
}
