package peer

import (
	"maps"
	"slices"
	"time"

	peerv1 "github.com/hostd/hostd/api/gen/hostd/peer/v1"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
)

// EncodeReport encodes a report. The caller adds the sizes of the shards.
func EncodeReport(r coordinator.Report) *peerv1.ReportRequest {
	out := &peerv1.ReportRequest{
		NodeId: string(r.Node), Incarnation: r.Incarnation, Seq: r.Seq, View: r.View,
		Replicas: r.Replicas, Draining: r.Draining, Full: r.Full, PaceMillis: uint32(r.Pace.Milliseconds()), Shards: make([]*peerv1.ShardReport, len(r.Shards)),
	}
	for _, node := range r.Reachable {
		out.Heard = append(out.Heard, string(node))
	}
	for i := range r.Shards {
		s := &r.Shards[i]
		o := &peerv1.ShardReport{
			ShardId: uint32(s.Shard), Replica: uint64(s.Replica), Term: uint64(s.Term), Leader: s.Leader,
			Commit: s.Commit, Applied: s.Applied, Last: s.Last,
			Voters: convert[uint64](s.Voters), Learners: convert[uint64](s.Learners), Outgoing: convert[uint64](s.Outgoing),
			Stopped: peerv1.StopReason(s.Stopped), Disputed: s.Disputed,
		}
		for _, replica := range slices.Sorted(maps.Keys(s.Match)) {
			o.Progress = append(o.Progress, &peerv1.Progress{Replica: uint64(replica), Match: s.Match[replica]})
		}
		out.Shards[i] = o
	}
	return out
}

// DecodeReport decodes a report.
func DecodeReport(r *peerv1.ReportRequest) coordinator.Report {
	out := coordinator.Report{
		Node: sharding.NodeID(r.GetNodeId()), Incarnation: r.GetIncarnation(), Seq: r.GetSeq(), View: r.GetView(),
		Replicas: r.GetReplicas(), Draining: r.GetDraining(), Full: r.GetFull(), Pace: time.Duration(r.GetPaceMillis()) * time.Millisecond, Shards: make([]coordinator.ShardReport, len(r.GetShards())),
	}
	for _, node := range r.GetHeard() {
		out.Reachable = append(out.Reachable, sharding.NodeID(node))
	}
	for i, s := range r.GetShards() {
		o := coordinator.ShardReport{
			Shard: sharding.ShardID(s.GetShardId()), Replica: sharding.ReplicaID(s.GetReplica()),
			Term: sharding.Term(s.GetTerm()), Leader: s.GetLeader(),
			Commit: s.GetCommit(), Applied: s.GetApplied(), Last: s.GetLast(),
			Voters:   convert[sharding.ReplicaID](s.GetVoters()),
			Learners: convert[sharding.ReplicaID](s.GetLearners()),
			Outgoing: convert[sharding.ReplicaID](s.GetOutgoing()),
			Stopped:  StopReason(s.GetStopped()), Disputed: s.GetDisputed(),
		}
		if len(s.GetProgress()) > 0 {
			o.Match = make(map[sharding.ReplicaID]uint64, len(s.GetProgress()))
		}
		for _, p := range s.GetProgress() {
			o.Match[sharding.ReplicaID(p.GetReplica())] = p.GetMatch()
		}
		out.Shards[i] = o
	}
	return out
}

// StopReason decodes why a replica has stopped. It treats an unknown reason
// of a later release as the milder reason, unsupported.
func StopReason(r peerv1.StopReason) sharding.StopReason {
	if r < 0 || r > peerv1.StopReason_STOP_REASON_DAMAGED {
		return sharding.StopUnsupported
	}
	return sharding.StopReason(r)
}

// convert copies numbers of one type into a slice of another type of the same
// size.
func convert[To, From ~uint64](in []From) []To {
	if len(in) == 0 {
		return nil
	}
	out := make([]To, len(in))
	for i, v := range in {
		out[i] = To(v)
	}
	return out
}
