package meta

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
)

func (t *transition) putMember(m Member) error {
	if err := checkMember(m); err != nil {
		return err
	}
	if err := t.view.checkSupports(m); err != nil {
		return err
	}
	old, known := t.view.members[m.Node]
	if known && old.Incarnation > m.Incarnation {
		return staleIncarnation(old, m.Incarnation)
	}
	return t.admit(m)
}

func staleIncarnation(m Member, got uint64) error {
	return fmt.Errorf("%w: incarnation %d of node %s is older than the member's, %d", ErrConflict, got, m.Node, m.Incarnation)
}

// admit stores a member that was already checked, if anything about it changed.
func (t *transition) admit(m Member) error {
	old, known := t.view.members[m.Node]
	if known && old.Equal(m) {
		return nil
	}
	if !known && len(t.view.members) >= MaxMembers {
		return fmt.Errorf("%w: the cluster already has %d members", ErrInvalid, MaxMembers)
	}
	put(&t.view.members, m.Node, m)
	t.store(prefixMember+string(m.Node), m)
	return nil
}

func (t *transition) join(m Member) (Result, error) {
	m.Status, m.Downed, m.Draining, m.Leaving = StatusJoining, false, false, false
	if err := checkMember(m); err != nil {
		return Result{}, err
	}
	if err := t.view.checkSupports(m); err != nil {
		return Result{}, err
	}
	if m.Disk == "" || m.Incarnation == 0 {
		return Result{}, fmt.Errorf("%w: node %s must state its disk id and incarnation when it joins", ErrInvalid, m.Node)
	}
	old, known := t.view.members[m.Node]
	if known && (old.Incarnation > m.Incarnation || old.Downed && old.Incarnation == m.Incarnation) {
		return Result{}, staleIncarnation(old, m.Incarnation)
	}
	if err := t.view.checkStart(m); err != nil {
		return Result{}, err
	}
	t.view.placements = maps.Clone(t.view.placements)
	if known && old.Disk != "" && old.Disk != m.Disk {
		t.loseDisk(m.Node)
	} else if known {
		m.Status = old.Status
		m.Draining = old.Draining && old.Incarnation == m.Incarnation
	}
	replica, fresh, err := t.metaReplica(m.Node)
	if err != nil {
		return Result{}, err
	}
	if m.Status == StatusDown {
		m.Status = StatusUp
		if fresh {
			m.Status = StatusJoining
		}
	}
	if m.Leaving = old.Leaving; m.Leaving {
		m.Status = StatusLeaving
	}
	if err := t.admit(m); err != nil {
		return Result{}, err
	}
	t.forgetDowned(m.Node)
	t.forgetLeft(m.Node)
	first := t.view.placements[sharding.MetaShard].First
	return Result{Joined: &JoinResult{Member: m, Replica: replica, First: first, Fresh: fresh}}, nil
}

// loseDisk marks all replicas of the node as lost, because none of them may
// vote again. They become leaving, except for the last voter of a shard, which
// stays to show that the shard's data is lost. The caller must have copied the
// placements map.
func (t *transition) loseDisk(node sharding.NodeID) {
	for _, old := range t.view.Placements() {
		p, changed := old.clone(), false
		for i := range p.Replicas {
			r := &p.Replicas[i]
			if r.Node != node || r.Lost {
				continue
			}
			r.Lost, changed = true, true
			others := slices.ContainsFunc(p.Replicas, func(o Replica) bool { return o.State == ReplicaVoter && !o.Lost })
			if r.State != ReplicaVoter || others {
				r.State = ReplicaLeaving
			}
		}
		if changed {
			t.putPlacement(p)
		}
	}
}

// metaReplica returns the node's replica of the metadata shard and allocates a
// new learner if it has none. If the old replica is leaving but not forgotten
// yet, the group may still need its vote, so the node must keep it and
// metaReplica fails with ErrConflict. The caller must have copied the
// placements map.
func (t *transition) metaReplica(node sharding.NodeID) (id sharding.ReplicaID, fresh bool, err error) {
	p := t.view.placements[sharding.MetaShard].clone()
	if r, has := p.ReplicaOn(node); has && r.State == ReplicaLeaving {
		return 0, false, fmt.Errorf("%w: replica %d of the metadata shard is still leaving node %s", ErrConflict, r.ID, node)
	} else if has {
		return r.ID, false, nil
	}
	if len(p.Replicas) >= MaxMetaReplicas {
		return 0, false, fmt.Errorf("%w: the metadata shard already has %d replicas", ErrInvalid, MaxMetaReplicas)
	}
	r := t.newReplica(node, ReplicaLearner)
	p.Replicas = append(p.Replicas, r)
	t.putPlacement(p)
	t.storeCounters()
	return r.ID, true, nil
}

func (t *transition) setStatus(s statusSet) error {
	m, known := t.view.members[s.Node]
	if !known {
		return fmt.Errorf("%w: %.64q", ErrUnknownNode, string(s.Node))
	}
	if s.Incarnation != 0 && s.Incarnation != m.Incarnation {
		return staleIncarnation(m, s.Incarnation)
	}
	switch {
	case s.Downed && s.Status != StatusDown:
		return fmt.Errorf("%w: an operator can only set the status down, got %.40q", ErrInvalid, string(s.Status))
	case s.Status == m.Status:
	case !slices.Contains(successors[m.Status], s.Status) || m.Downed:
		return fmt.Errorf("%w: node %s is %s and cannot become %.40q", ErrConflict, m.Node, m.Status, string(s.Status))
	}
	switch {
	case t.view.ClusterVersion() < sharding.VersionLeaving:
	case s.Status == StatusLeaving:
		m.Leaving = true
	case s.Status == StatusUp && m.Leaving && m.Status == StatusDown:
		s.Status = StatusLeaving // the node is reachable again and continues to leave
	case s.Status == StatusUp:
		m.Leaving = false
	}
	m.Status, m.Downed = s.Status, m.Downed || s.Downed
	return t.admit(m)
}

func (t *transition) setDraining(s statusSet) error {
	m, known := t.view.members[s.Node]
	if !known {
		return fmt.Errorf("%w: %.64q", ErrUnknownNode, string(s.Node))
	}
	if s.Incarnation != 0 && s.Incarnation != m.Incarnation {
		return staleIncarnation(m, s.Incarnation)
	}
	m.Draining = s.Draining
	return t.admit(m)
}

func (t *transition) removeMember(node sharding.NodeID) error {
	m, known := t.view.members[node]
	if !known {
		return nil
	}
	if m.Status != StatusLeaving && m.Status != StatusDown {
		return fmt.Errorf("%w: node %s is %s and cannot be removed", ErrConflict, node, m.Status)
	}
	for _, p := range t.view.Placements() {
		if slices.ContainsFunc(p.Replicas, func(r Replica) bool { return r.Node == node }) {
			return fmt.Errorf("%w: node %s still has a replica of shard %d", ErrConflict, node, p.Shard)
		}
	}
	next := maps.Clone(t.view.members)
	delete(next, node)
	t.view.members = next
	t.writes = append(t.writes, KV{Key: []byte(prefixMember + string(node))})
	if m.Downed {
		t.rememberDowned(node, m.Incarnation)
	} else {
		t.rememberLeft(m)
	}
	return nil
}
