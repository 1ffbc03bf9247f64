package meta

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
)

func (t *transition) place(asked []PlaceOn) (Result, error) {
	for _, on := range asked {
		if err := t.checkPlaceOn(on); err != nil {
			return Result{}, err
		}
	}
	t.view.placements = maps.Clone(t.view.placements)
	first := t.view.counters.NextReplica
	res := Result{Placements: make([]Placement, 0, len(asked))}
	for _, on := range asked {
		p, placed := t.view.placements[on.Shard]
		if !placed {
			for _, node := range on.Nodes {
				if err := t.checkHost(on.Shard, node); err != nil {
					return Result{}, err
				}
			}
			p = t.allocate(on)
		}
		res.Placements = append(res.Placements, p)
	}
	if t.view.counters.NextReplica != first {
		t.storeCounters()
	}
	return res, nil
}

func (t *transition) checkPlaceOn(on PlaceOn) error {
	if uint32(on.Shard) > t.view.cluster.Shards {
		return fmt.Errorf("%w: shard %d, the cluster has %d shards", ErrUnknownShard, on.Shard, t.view.cluster.Shards)
	}
	if len(on.Nodes) == 0 || len(on.Nodes) > MaxReplicas {
		return fmt.Errorf("%w: got %d replicas for shard %d, 1 to %d are allowed", ErrInvalid, len(on.Nodes), on.Shard, MaxReplicas)
	}
	for i, node := range on.Nodes {
		if _, ok := t.view.members[node]; !ok {
			return fmt.Errorf("%w: %.64q", ErrUnknownNode, string(node))
		}
		if slices.Contains(on.Nodes[:i], node) {
			return fmt.Errorf("%w: two replicas of shard %d on one node", ErrInvalid, on.Shard)
		}
	}
	return nil
}

// newReplica allocates a replica. The counter only increases, so replica ids
// are never reused.
func (t *transition) newReplica(node sharding.NodeID, state ReplicaState) Replica {
	r := Replica{ID: t.view.counters.NextReplica, Node: node, State: state}
	t.view.counters.NextReplica++
	return r
}

// allocate creates the voters of a shard that has no placement. The caller must
// have copied the placements map.
func (t *transition) allocate(on PlaceOn) Placement {
	p := Placement{Shard: on.Shard, Replicas: make([]Replica, 0, len(on.Nodes))}
	for _, node := range on.Nodes {
		p.Replicas = append(p.Replicas, t.newReplica(node, ReplicaVoter))
	}
	p.First = p.IDs(ReplicaVoter)
	return t.putPlacement(p)
}

// putPlacement stores a changed placement. The caller must have copied the
// placements map.
func (t *transition) putPlacement(p Placement) Placement {
	p.Changed = t.view.index
	t.view.placements[p.Shard] = p
	t.store(shardKey(p.Shard), p)
	return p
}

// checkHost checks whether the node may be given a replica of the shard.
func (t *transition) checkHost(shard sharding.ShardID, node sharding.NodeID) error {
	m, ok := t.view.members[node]
	switch {
	case !ok:
		return fmt.Errorf("%w: %.64q", ErrUnknownNode, string(node))
	case shard != sharding.MetaShard && m.HasRole(RoleProxy):
		return fmt.Errorf("%w: node %s is a proxy and cannot hold data", ErrConflict, node)
	case m.Status == StatusUp, shard == sharding.MetaShard && m.Status == StatusJoining:
		return nil
	}
	return fmt.Errorf("%w: node %s is %s and cannot hold a replica", ErrConflict, node, m.Status)
}

// change applies a change to a copy of the placement and checks the result.
func (t *transition) change(c Change) (Result, error) {
	old, placed := t.view.placements[c.Shard]
	if !placed {
		return Result{}, fmt.Errorf("%w: shard %d has no replicas yet", ErrUnknownShard, c.Shard)
	}
	if n := len(c.Add) + len(c.Promote) + len(c.Demote) + len(c.Retire) + len(c.Forget); n == 0 || n > MaxMetaReplicas {
		return Result{}, fmt.Errorf("%w: a change must name exactly one replica, got %d", ErrInvalid, n)
	}
	p := old.clone()
	for _, step := range []func(*Placement, Change) error{forget, t.promote, demote, t.retire, t.add} {
		if err := step(&p, c); err != nil {
			return Result{}, err
		}
	}
	if slices.Equal(p.Replicas, old.Replicas) {
		return Result{Placements: []Placement{p}}, nil
	}
	if err := t.checkChanged(old, p); err != nil {
		return Result{}, err
	}
	t.view.placements = maps.Clone(t.view.placements)
	p = t.putPlacement(p)
	if len(c.Add) > 0 {
		t.storeCounters()
	}
	return Result{Placements: []Placement{p}}, nil
}

func forget(p *Placement, c Change) error {
	for _, id := range c.Forget {
		if r, ok := p.Replica(id); ok && r.State != ReplicaLeaving {
			return fmt.Errorf("%w: replica %d of shard %d is a %s, so its record cannot be deleted", ErrConflict, id, p.Shard, r.State)
		}
		p.Replicas = slices.DeleteFunc(p.Replicas, func(r Replica) bool { return r.ID == id })
	}
	return nil
}

func (t *transition) promote(p *Placement, c Change) error {
	for _, id := range c.Promote {
		r := p.find(id)
		if r == nil || r.State == ReplicaLeaving || r.Lost {
			return fmt.Errorf("%w: shard %d has no replica %d to promote", ErrConflict, p.Shard, id)
		}
		m, ok := t.view.members[r.Node]
		if r.State != ReplicaVoter && (!ok || m.Status != StatusUp || m.HasRole(RoleProxy)) {
			return fmt.Errorf("%w: node %s cannot become a voter of shard %d", ErrConflict, r.Node, p.Shard)
		}
		r.State = ReplicaVoter
	}
	return nil
}

func demote(p *Placement, c Change) error {
	for _, id := range c.Demote {
		r := p.find(id)
		if r == nil || r.State == ReplicaLeaving {
			return fmt.Errorf("%w: shard %d has no replica %d to demote", ErrConflict, p.Shard, id)
		}
		r.State = ReplicaLearner
	}
	return nil
}

// retire marks replicas as leaving. A member that stays keeps its replica of
// the metadata shard, because it would otherwise miss all further metadata
// changes.
func (t *transition) retire(p *Placement, c Change) error {
	for _, id := range c.Retire {
		r := p.find(id)
		if r == nil {
			continue
		}
		m, ok := t.view.members[r.Node]
		if p.Shard == sharding.MetaShard && ok && !r.Lost && (m.Status == StatusUp || m.Status == StatusJoining) {
			return fmt.Errorf("%w: node %s is %s, so its replica of the metadata shard cannot be removed", ErrConflict, r.Node, m.Status)
		}
		r.State = ReplicaLeaving
	}
	return nil
}

func (t *transition) add(p *Placement, c Change) error {
	for _, node := range c.Add {
		if r, has := p.ReplicaOn(node); has {
			if r.State == ReplicaLeaving {
				return fmt.Errorf("%w: replica %d of shard %d is still leaving node %s", ErrConflict, r.ID, p.Shard, node)
			}
			continue
		}
		if err := t.checkHost(p.Shard, node); err != nil {
			return err
		}
		p.Replicas = append(p.Replicas, t.newReplica(node, ReplicaLearner))
	}
	return nil
}

// checkChanged rejects a change that would cost a shard its quorum or a
// majority of its copies.
func (t *transition) checkChanged(old, p Placement) error {
	limit := MaxReplicas
	if p.Shard == sharding.MetaShard {
		limit = MaxMetaReplicas
	}
	if len(p.Replicas) > limit {
		return fmt.Errorf("%w: got %d replicas for shard %d, at most %d are allowed", ErrInvalid, len(p.Replicas), p.Shard, limit)
	}
	var voters, alive, kept, fewer int
	for _, r := range p.Replicas {
		before, _ := old.Replica(r.ID)
		if before.State == ReplicaVoter && r.State != ReplicaVoter {
			fewer++
		}
		if r.State != ReplicaLeaving && (before.State == ReplicaVoter || r.State == ReplicaVoter) {
			kept++
		}
		if r.State == ReplicaVoter {
			voters++
			if m, ok := t.view.members[r.Node]; ok && m.Status != StatusDown && !r.Lost {
				alive++
			}
		}
	}
	switch {
	case fewer == 0:
		return nil
	case alive < voters/2+1:
		return fmt.Errorf("%w: shard %d would lose its quorum: %d voters, %d of them alive", ErrConflict, p.Shard, voters, alive)
	case kept < old.countState(ReplicaVoter)/2+1:
		return fmt.Errorf("%w: shard %d would keep its data on only %d of its %d voters", ErrConflict, p.Shard, kept, old.countState(ReplicaVoter))
	}
	return nil
}
