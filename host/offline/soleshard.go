package offline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/journal/raftgroup/offline"
	"github.com/hostd/hostd/journal/raftgroup/recovery"
	"github.com/hostd/hostd/journal/wal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// UnsafeRecovery is the input of RecoverUnsafely.
type UnsafeRecovery struct {
	Shards []sharding.ShardID
	// MetadataLost means that the metadata has lost its majority too, so that
	// this node's copy of it does not show which nodes are left.
	MetadataLost bool
	// Confirmed must be set, otherwise nothing is changed.
	Confirmed bool
	At        time.Time
}

// ErrUnconfirmed means that RecoverUnsafely printed what it would do, and
// changed nothing.
var ErrUnconfirmed = errors.New("nothing was changed")

// RecoverUnsafely lets data shards that have permanently lost their majority
// continue with the data of this stopped node, whose replica becomes the only
// one. Data that only the other replicas had is lost, even if it was
// acknowledged. It prints to out what it does, and can be repeated. It fails if
// the metadata on this node shows a majority of a shard on nodes that are not
// down. When the node starts, the metadata checks the majorities again
// before a shard serves; then other nodes get replicas of the shard.
func RecoverUnsafely(ctx context.Context, dir string, u UnsafeRecovery, out io.Writer) error {
	lock, id, err := lockMember(dir, "it has no replica to recover")
	if err != nil {
		return err
	}
	defer lock.Close()
	if id.Format < sharding.VersionRecoverShard {
		return fmt.Errorf("the data directory has cluster version %d, which does not support this: run 'hostd cluster upgrade finalize' first", id.Format)
	}
	rec, _, err := soundData(ctx, dir)
	if err != nil {
		return err
	}
	plan, err := planSole(dir, rec, u, out)
	if err != nil {
		return err
	}
	if !u.Confirmed {
		return ErrUnconfirmed
	}
	// Write the identity first, so that no shard serves before the metadata has
	// accepted it.
	for _, s := range plan {
		id.Sole = append(slices.DeleteFunc(id.Sole, func(o datadir.SoleReplica) bool { return o.Shard == s.Shard }), s)
	}
	if err := id.Write(dir); err != nil {
		return err
	}
	for _, s := range plan {
		note := fmt.Sprintf("hostd recover --unsafe-shard %d on node %s at %s", s.Shard, id.Node, u.At.UTC().Format(time.RFC3339))
		if err := withLog(dir, func(rec *recovery.Recovered, log *wal.Log) error {
			made, err := offline.MakeSole(rec, log, s.Shard, note)
			if err == nil {
				fmt.Fprintf(out, "shard %d continues with replica %d from index %d of term %d; abandoned replicas: %v\n", s.Shard, made.Replica, made.Index, made.Term, made.Removed)
			}
			return err
		}); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, "start this node; never start the data directories of the abandoned replicas again")
	return nil
}

// planSole finds the replicas, checks them against the metadata if possible,
// and prints what will be given up.
func planSole(dir string, rec *recovery.Recovered, u UnsafeRecovery, out io.Writer) ([]datadir.SoleReplica, error) {
	var view *meta.View
	if !u.MetadataLost {
		state, _, err := metadataState(dir, rec)
		switch {
		case err != nil:
			return nil, err
		case state == nil:
			return nil, errors.New("the node has no metadata that shows which other nodes remain")
		}
		view = state.View()
	}
	replicas, err := rec.Replicas()
	if err != nil {
		return nil, err
	}
	var plan []datadir.SoleReplica
	for _, shard := range u.Shards {
		at := slices.IndexFunc(replicas, func(r recovery.ReplicaInfo) bool { return r.Shard == shard })
		switch {
		case shard == sharding.MetaShard:
			return nil, errors.New("shard 0 is the metadata shard: see --rebuild-metadata")
		case at < 0:
			return nil, fmt.Errorf("this node has no replica of shard %d: choose a node that has one", shard)
		}
		r := &replicas[at]
		if view != nil {
			if err := view.CheckRecoverShard(shard, r.Replica); err != nil {
				return nil, err
			}
		}
		last, term := r.Index, r.Term
		if all := rec.Entries(shard); len(all) > 0 {
			last, term = all[len(all)-1].Index, all[len(all)-1].Term
		}
		fmt.Fprintf(out, "shard %d: replica %d on this node has all entries up to index %d of term %d; entries that only other replicas of %v had are lost\n",
			shard, r.Replica, last, term, slices.Concat(r.Voters, r.Outgoing))
		if view != nil {
			describeOthers(view, shard, r.Replica, out)
		}
		plan = append(plan, datadir.SoleReplica{Shard: shard, Replica: r.Replica})
	}
	return plan, nil
}

func describeOthers(view *meta.View, shard sharding.ShardID, self sharding.ReplicaID, out io.Writer) {
	p, _ := view.Placement(shard)
	for _, r := range p.Replicas {
		if r.ID == self {
			continue
		}
		why := "which is no longer a member"
		if m, known := view.Member(r.Node); r.Lost {
			why = "whose disk is lost"
		} else if known && m.Status == meta.StatusDown {
			why = "which is down"
		} else if known {
			why = "WHICH REMAINS: if it has a later index of the same or a later term, recover there instead"
		}
		fmt.Fprintf(out, "  replica %d on node %s, %s\n", r.ID, r.Node, why)
	}
}
