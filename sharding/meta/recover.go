package meta

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hostd/hostd/sharding"
)

// recoverSet names the replica that a shard goes on with.
type recoverSet struct {
	Shard   sharding.ShardID   `json:"shard"`
	Replica sharding.ReplicaID `json:"replica"`
}

// RecoverShard makes the command that lets a data shard, whose majority is gone
// for good, go on with one replica: that one votes, and all others leave. It is
// ErrConflict where the replica is none of the shard any more, or where those
// of nodes that are not down could still be a majority of the voters. The same
// command again is accepted.
func RecoverShard(shard sharding.ShardID, replica sharding.ReplicaID) []byte {
	return encode(command{Op: opRecoverShard, Recover: &recoverSet{shard, replica}})
}

// Recoverable says why RecoverShard would be refused in this view, nil if it
// would not.
func (v *View) Recoverable(shard sharding.ShardID, replica sharding.ReplicaID) error {
	if v.ClusterVersion() < sharding.VersionRecoverShard {
		return fmt.Errorf("%w: a cluster of level %d does not let a shard go on with one replica", ErrClusterVersion, v.ClusterVersion())
	}
	if shard == sharding.MetaShard {
		return fmt.Errorf("%w: the metadata shard is rebuilt instead", ErrInvalid)
	}
	p, placed := v.placements[shard]
	if !placed {
		return fmt.Errorf("%w: %d is not placed", ErrUnknownShard, shard)
	}
	self, ok := p.Replica(replica)
	if !ok || self.Lost || self.State == ReplicaLeaving {
		return fmt.Errorf("%w: shard %d has no replica %d any more", ErrConflict, shard, replica)
	}
	if len(p.Replicas) == 1 || p.goesOnWith(replica) {
		return nil
	}
	voters, alive := 0, []string(nil)
	for _, r := range p.Replicas {
		if r.State == ReplicaLearner && r.ID != replica {
			continue // one that is leaving may have voted, and may still
		}
		voters++
		m, known := v.members[r.Node]
		if r.ID == replica || known && m.Status != StatusDown && !r.Lost {
			alive = append(alive, fmt.Sprintf("replica %d on node %s", r.ID, r.Node))
		}
	}
	if len(alive) > voters/2 {
		return fmt.Errorf("%w: shard %d has a majority of its %d voters: %s", ErrConflict, shard, voters, strings.Join(alive, ", "))
	}
	return nil
}

// goesOnWith says whether RecoverShard was carried out for the replica, and the
// others have not been replaced since.
func (p Placement) goesOnWith(replica sharding.ReplicaID) bool {
	return p.Recovered == replica && !slices.ContainsFunc(p.Replicas, func(r Replica) bool { return r.ID != replica && r.State != ReplicaLeaving })
}

func (t *transition) recoverShard(c recoverSet) (Result, error) {
	if err := t.view.Recoverable(c.Shard, c.Replica); err != nil {
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
