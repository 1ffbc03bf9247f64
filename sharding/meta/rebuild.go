package meta

import (
	"fmt"
	"maps"

	"github.com/hostd/hostd/sharding"
)

// Rebuild returns a state assembled from the data that the nodes have stored:
// base (New() if no metadata is left) with its members and placements replaced.
// next must be greater than every replica id ever allocated, and revision the
// highest binding revision that any shard has run under; later bindings get
// higher revisions. version is the lowest of all data directories, which are
// upgraded before the cluster version. Use Dump and Load to move the state.
// Rebuild returns ErrInvalid if the result would violate a rule of the
// metadata.
func Rebuild(base *State, c Cluster, next sharding.ReplicaID, revision uint64, level sharding.ClusterVersion, members []Member, placements []Placement) (*State, error) {
	v := *base.View()
	if v.created && v.cluster != c {
		return nil, fmt.Errorf("%w: the command is for cluster %s, but this is the metadata of cluster %s", ErrInvalid, c.ID, v.cluster.ID)
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
	v.downed = map[sharding.NodeID]uint64{} // nodes that are listed as members may join
	v.left = map[sharding.NodeID]leftNode{}
	for _, m := range members {
		if err := checkMember(m); err != nil {
			return nil, err
		}
		v.members[m.Node] = m
	}
	seen := map[sharding.ReplicaID]bool{}
	for _, p := range placements {
		if err := v.checkPlacement(p, seen); err != nil {
			return nil, err
		}
		p.Changed = 0
		v.placements[p.Shard] = p
	}
	if len(v.members) != len(members) || len(v.placements) != len(placements) || len(members) > MaxMembers {
		return nil, fmt.Errorf("%w: a member or a shard is listed twice, or there are too many", ErrInvalid)
	}
	v.modules, v.activations, v.settings = maps.Clone(v.modules), maps.Clone(v.activations), maps.Clone(v.settings)
	v.roles, v.roleBindings = maps.Clone(v.roles), maps.Clone(v.roleBindings)
	v.tokens, v.verified = maps.Clone(v.tokens), maps.Clone(v.verified)
	s := &State{}
	s.current.Store(&v)
	return s, nil
}

func (v *View) checkPlacement(p Placement, seen map[sharding.ReplicaID]bool) error {
	if uint32(p.Shard) > v.cluster.Shards {
		return fmt.Errorf("%w: shard %d, the cluster has %d shards", ErrUnknownShard, p.Shard, v.cluster.Shards)
	}
	if p.countState(ReplicaVoter) == 0 || len(p.First) == 0 {
		return fmt.Errorf("%w: shard %d has no voter", ErrInvalid, p.Shard)
	}
	on := map[sharding.NodeID]bool{}
	for _, r := range p.Replicas {
		if _, ok := v.members[r.Node]; !ok {
			return fmt.Errorf("%w: %.64q", ErrUnknownNode, string(r.Node))
		}
		if on[r.Node] || seen[r.ID] || r.ID == 0 || r.ID >= v.counters.NextReplica {
			return fmt.Errorf("%w: replica %d of shard %d is used twice, shares its node or was never allocated", ErrInvalid, r.ID, p.Shard)
		}
		on[r.Node], seen[r.ID] = true, true
	}
	return nil
}
