package meta

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hostd/hostd/sharding"
)

// recoverSet names the replica that a shard continues with.
type recoverSet struct {
	Shard   sharding.ShardID   `json:"shard"`
	Replica sharding.ReplicaID `json:"replica"`
}

// RecoverShard returns the command that lets a data shard with a permanently
// lost majority continue with one replica: that replica becomes the only voter
// and all other replicas leave. It fails with ErrConflict if the replica no
// longer belongs to the shard, or if the replicas on nodes that are not down
// could still form a majority. Repeating the command succeeds.
func RecoverShard(shard sharding.ShardID, replica sharding.ReplicaID) []byte {
	return encode(command{Op: opRecoverShard, Recover: &recoverSet{shard, replica}})
}

// CheckRecoverShard returns the error with which RecoverShard would fail in
// this view, or nil.
func (v *View) CheckRecoverShard(shard sharding.ShardID, replica sharding.ReplicaID) error {
	if v.ClusterVersion() < sharding.VersionRecoverShard {
		return fmt.Errorf("%w: at cluster version %d a shard cannot be recovered from one replica", ErrClusterVersion, v.ClusterVersion())
	}
	if shard == sharding.MetaShard {
		return fmt.Errorf("%w: the metadata shard cannot be recovered from one replica, it must be rebuilt", ErrInvalid)
	}
	p, placed := v.placements[shard]
	if !placed {
		return fmt.Errorf("%w: shard %d has no replicas yet", ErrUnknownShard, shard)
	}
	self, ok := p.Replica(replica)
	if !ok || self.Lost || self.State == ReplicaLeaving {
		return fmt.Errorf("%w: shard %d no longer has a replica %d", ErrConflict, shard, replica)
	}
	if len(p.Replicas) == 1 || p.isRecoveredWith(replica) {
		return nil
	}
	voters, alive := 0, []string(nil)
	for _, r := range p.Replicas {
		if r.State == ReplicaLearner && r.ID != replica {
			continue // a leaving replica is counted, because it may have been a voter and may still vote
		}
		voters++
		m, known := v.members[r.Node]
		if r.ID == replica || known && m.Status != StatusDown && !r.Lost {
			alive = append(alive, fmt.Sprintf("replica %d on node %s", r.ID, r.Node))
		}
	}
	if len(alive) > voters/2 {
		return fmt.Errorf("%w: shard %d still has a majority of its %d voters: %s", ErrConflict, shard, voters, strings.Join(alive, ", "))
	}
	return nil
}

// isRecoveredWith reports whether RecoverShard was applied for the replica and
// the other replicas have not been replaced since.
func (p Placement) isRecoveredWith(replica sharding.ReplicaID) bool {
	return p.Recovered == replica && !slices.ContainsFunc(p.Replicas, func(r Replica) bool { return r.ID != replica && r.State != ReplicaLeaving })
}

func (t *transition) recoverShard(c recoverSet) (Result, error) {
	if err := t.view.CheckRecoverShard(c.Shard, c.Replica); err != nil {
		return Result{}, err
	}
	old := t.view.placements[c.Shard]
	p := old.clone()
	for i := range p.Replicas {
		r := &p.Replicas[i]
		r.State = ReplicaLeaving
		if r.ID == c.Replica {
			r.State = ReplicaVoter
		}
	}
	p.Recovered = c.Replica
	if slices.Equal(p.Replicas, old.Replicas) && old.Recovered == c.Replica {
		return Result{Placements: []Placement{p}}, nil
	}
	t.view.placements = maps.Clone(t.view.placements)
	return Result{Placements: []Placement{t.putPlacement(p)}}, nil
}
