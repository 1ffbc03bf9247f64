package meta

import (
	"fmt"
	"maps"

	"github.com/hostd/hostd/sharding"
)

// Rebuilt makes a state that was put together from what the nodes hold: base
// (New() if nothing of the metadata is left) with its members and placements
// replaced. next is above every replica id that was ever handed out, and
// revision is the highest binding revision that any shard runs under: those of
// later bindings are above it. level is the lowest of all nodes' directories,
// which were raised before the cluster's. It is loaded elsewhere with Dump and
// Load. What breaks a rule of the metadata is ErrInvalid.
func Rebuilt(base *State, c Cluster, next sharding.ReplicaID, revision uint64, level sharding.ClusterVersion, members []Member, placements []Placement) (*State, error) {
	v := *base.View()
	if v.created && v.cluster != c {
		return nil, fmt.Errorf("%w: cluster %s, the metadata is of %s", ErrInvalid, c.ID, v.cluster.ID)
	}
	if err := checkCluster(c); err != nil {
		return nil, err
	}
	v.index, v.cluster, v.created = 0, c, true
	v.counters.NextReplica = max(next, v.counters.NextReplica)
	v.counters.Revision = max(revision, v.counters.Revision)
	if level = max(level, v.ClusterVersion()); level > sharding.Version1 {
		v.level = level
	}
	v.members, v.placements = map[sharding.NodeID]Member{}, map[sharding.ShardID]Placement{}
	v.downed = map[sharding.NodeID]uint64{} // who is brought along is wanted
	v.left = map[sharding.NodeID]leftNode{}
	for _, m := range members {
		if err := checkMember(m); err != nil {
			return nil, err
		}
		v.members[m.Node] = m
	}
	seen := map[sharding.ReplicaID]bool{}
	for _, p := range placements {
		if err := v.checkRebuilt(p, seen); err != nil {
			return nil, err
		}
		p.Changed = 0
		v.placements[p.Shard] = p
	}
	if len(v.members) != len(members) || len(v.placements) != len(placements) || len(members) > MaxMembers {
		return nil, fmt.Errorf("%w: a member or a shard is there twice, or there are too many", ErrInvalid)
	}
	v.modules, v.bindings, v.settings = maps.Clone(v.modules), maps.Clone(v.bindings), maps.Clone(v.settings)
	v.roles, v.roleBindings = maps.Clone(v.roles), maps.Clone(v.roleBindings)
	v.tokens, v.verified = maps.Clone(v.tokens), maps.Clone(v.verified)
	s := &State{}
	s.current.Store(&v)
	return s, nil
}

func (v *View) checkRebuilt(p Placement, seen map[sharding.ReplicaID]bool) error {
	if uint32(p.Shard) > v.cluster.Shards {
		return fmt.Errorf("%w: %d, the cluster has %d", ErrUnknownShard, p.Shard, v.cluster.Shards)
	}
	if p.count(ReplicaVoter) == 0 || len(p.First) == 0 {
		return fmt.Errorf("%w: shard %d without a voter", ErrInvalid, p.Shard)
	}
	on := map[sharding.NodeID]bool{}
	for _, r := range p.Replicas {
		if _, ok := v.members[r.Node]; !ok {
			return fmt.Errorf("%w: %.64q", ErrUnknownNode, string(r.Node))
		}
		if on[r.Node] || seen[r.ID] || r.ID == 0 || r.ID >= v.counters.NextReplica {
			return fmt.Errorf("%w: replica %d of shard %d is used twice, shares its node or was never handed out", ErrInvalid, r.ID, p.Shard)
		}
		on[r.Node], seen[r.ID] = true, true
	}
	return nil
}
