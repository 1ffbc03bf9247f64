package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// shardReleaser is the raft loop, which holds a sole replica back.
type shardReleaser interface {
	// ReleaseShard lets a shard serve.
	ReleaseShard(sharding.ShardID) error
}

// SoleShards handles the shards whose replica on this node was made the only
// replica by an operator (recovery after a lost majority). The metadata must
// accept these replicas before the shards serve.
type SoleShards struct {
	Identity  *datadir.Record
	Metadata  *Metadata
	Admitted  <-chan struct{} // closed when the node may vote
	Applier   stopper         // stops a shard's replica here
	Raft      shardReleaser
	Lifecycle lifecycle
	Logger    *slog.Logger
}

// UnacceptedShards returns the shards that the metadata must accept. It drops
// recoveries that were interrupted before the replica was alone, because they
// changed nothing.
func UnacceptedShards(identity *datadir.Record, rec *recovery.Recovered) ([]sharding.ShardID, error) {
	alone := func(s datadir.SoleReplica) bool {
		return slices.ContainsFunc(rec.Groups, func(g recovery.Replica) bool {
			return g.Shard == s.Shard && g.Replica == s.Replica && len(g.Learners) == 0 && slices.Equal(g.Voters, []sharding.ReplicaID{s.Replica})
		})
	}
	err := identity.Save(func(id *datadir.Identity) bool {
		kept := slices.DeleteFunc(slices.Clone(id.Sole), func(s datadir.SoleReplica) bool { return !alone(s) })
		changed := len(kept) != len(id.Sole)
		id.Sole = kept
		return changed
	})
	var shards []sharding.ShardID
	for _, s := range identity.Now().Sole {
		shards = append(shards, s.Shard)
	}
	return shards, err
}

const (
	// soleEvery is how often the metadata is asked to accept a replica as the
	// only one of its shard. soleTimeout bounds one attempt.
	soleEvery   = 500 * time.Millisecond
	soleTimeout = 10 * time.Second
)

// Run asks the metadata to let the shards continue with this node's replicas,
// until it has answered for each or ctx ends.
func (o SoleShards) Run(ctx context.Context) {
	sole := o.Identity.Now().Sole
	if len(sole) == 0 {
		return
	}
	select {
	case <-o.Admitted:
	case <-ctx.Done():
		return
	}
	every := time.NewTicker(soleEvery)
	defer every.Stop()
	for _, s := range sole {
		for !o.recover(ctx, s) {
			select {
			case <-every.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// recover asks once and reports whether the answer is final. The metadata
// rejects the replica if the shard has a majority without it or has replaced
// it.
func (o SoleShards) recover(ctx context.Context, s datadir.SoleReplica) (settled bool) {
	ctx, cancel := context.WithTimeout(ctx, soleTimeout)
	defer cancel()
	_, err := o.Metadata.Do(ctx, meta.RecoverShard(s.Shard, s.Replica))
	if err == nil {
		err = o.Metadata.CatchUp(ctx)
	}
	switch {
	case err == nil:
	case errors.Is(err, meta.ErrConflict), errors.Is(err, meta.ErrUnknownShard), errors.Is(err, meta.ErrInvalid), errors.Is(err, meta.ErrClusterVersion):
		o.Logger.Error("a shard cannot continue with this node's replica", "shard_id", uint32(s.Shard), "replica", uint64(s.Replica), "error", err)
		o.Applier.Stop(s.Shard, fmt.Errorf("an operator recovered the shard from this replica, but the cluster rejected it: %w", err))
		return true
	default:
		o.Logger.Warn("cannot ask the metadata yet whether a shard continues with this node's replica", "shard_id", uint32(s.Shard), "error", err)
		return false
	}
	o.Logger.Warn("a shard continues with only this node's replica; entries that only other replicas had are lost", "shard_id", uint32(s.Shard), "replica", uint64(s.Replica))
	err = o.Identity.Save(func(id *datadir.Identity) bool {
		id.Sole = slices.DeleteFunc(slices.Clone(id.Sole), func(r datadir.SoleReplica) bool { return r == s })
		return true
	})
	if err == nil {
		err = o.Raft.ReleaseShard(s.Shard)
	}
	if err != nil && !o.Lifecycle.Stopping() {
		o.Lifecycle.End(err)
	}
	return true
}
