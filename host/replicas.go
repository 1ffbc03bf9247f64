package host

import (
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/stall"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// replicas holds the node's replicas of shards: their write-ahead log and raft
// groups, the state machine that applies it, and the store.
type replicas struct {
	log         *wal.Log
	raft        raftLog
	applier     *eventlog.Applier
	machine     *eventlog.Machine
	store       *store.Store
	consistency *cluster.ConsistencyChecker
	pace        stall.Pace                 // duration of syncs of the log
	state       atomic.Pointer[meta.State] // the metadata as applied on this node
}

// ClusterVersion returns the cluster version as applied on this node.
func (r *replicas) ClusterVersion() sharding.ClusterVersion {
	if state := r.state.Load(); state != nil {
		return state.ClusterVersion()
	}
	return sharding.Version1
}

// groupFailed stops the replica of a failed raft group. The replica serves
// nothing more and is replaced.
func (r *replicas) groupFailed(shard sharding.ShardID, err error) { r.applier.Stop(shard, err) }

// StopReason returns why this node's replica of a shard has stopped, if it has.
func (r *replicas) StopReason(shard sharding.ShardID) sharding.StopReason {
	return eventlog.ReasonOf(r.machine.StopError(shard))
}

// paceNow returns the current duration of a turn of the Raft loop.
func (r *replicas) paceNow() time.Duration {
	pace := r.pace.At(time.Now())
	if l := r.raft.loop.Load(); l != nil {
		pace = max(pace, l.Lag())
	}
	return pace
}

// appliedIndex returns the applied index of this node's replica of a shard.
func (r *replicas) appliedIndex(shard sharding.ShardID) uint64 {
	index, _ := r.machine.Applied(shard)
	return index
}
