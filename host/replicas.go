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

// replicas are the node's replicas of shards: their log and its raft groups, the
// state machine behind them, and the store below that.
type replicas struct {
	log     *wal.Log
	raft    raftLog
	applier *eventlog.Applier
	machine *eventlog.Machine
	store   *store.Store
	judge   *cluster.ConsistencyChecker
	pace    stall.Pace                 // of syncs of the log
	state   atomic.Pointer[meta.State] // of the metadata, as this node has applied it
}

// level is the cluster's, as far as this node has applied its metadata.
func (r *replicas) level() sharding.ClusterVersion {
	if state := r.state.Load(); state != nil {
		return state.ClusterVersion()
	}
	return sharding.Version1
}

// groupFailed stops the shard of a raft group that failed: it serves nothing
// more, and is replaced.
func (r *replicas) groupFailed(shard sharding.ShardID, err error) { r.applier.Stop(shard, err) }

// stopReason says why this node's replica of a shard has stopped, if it has.
func (r *replicas) stopReason(shard sharding.ShardID) sharding.StopReason {
	return eventlog.ReasonOf(r.machine.StopError(shard))
}

// paceNow is what a step of the raft loop takes of late.
func (r *replicas) paceNow() time.Duration {
	pace := r.pace.At(time.Now())
	if l := r.raft.loop.Load(); l != nil {
		pace = max(pace, l.Lag())
	}
	return pace
}

// applied is how far a replica here has applied its log.
func (r *replicas) applied(shard sharding.ShardID) uint64 {
	index, _ := r.machine.Applied(shard)
	return index
}
