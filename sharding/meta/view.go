package meta

import (
	"cmp"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
)

// View is the metadata as of one log index. It is immutable and shared: its
// results must not be modified, and it is safe for concurrent use.
type View struct {
	index       uint64
	cluster     Cluster
	created     bool
	counters    counters
	policy      *Policy                 // nil until set
	level       sharding.ClusterVersion // 0 until it is raised
	members     map[sharding.NodeID]Member
	downed      map[sharding.NodeID]uint64   // incarnations of former members
	left        map[sharding.NodeID]leftNode // former members that were not declared down
	placements  map[sharding.ShardID]Placement
	modules     map[Digest]Module
	activations map[string]Activation
	verified    map[string]verificationResults // by entity type
	settings    map[string]Setting

	roles        map[string]access.Role
	roleBindings map[string]access.Binding // by subject
	tokens       map[string]access.Token
}

// Index returns the log index of the last command applied, or at which the
// state was loaded; 0 right after a restore.
func (v *View) Index() uint64 { return v.index }

// Cluster returns the cluster's identity, and false if it has not been created.
func (v *View) Cluster() (Cluster, bool) { return v.cluster, v.created }

// Revision returns the revision of the latest binding change. It increases by
// one with each change, across all entity types.
func (v *View) Revision() uint64 { return v.counters.Revision }

// Member returns the member with the node id.
func (v *View) Member(node sharding.NodeID) (Member, bool) {
	m, ok := v.members[node]
	return m, ok
}

// Members returns all members, sorted by node id.
func (v *View) Members() []Member { return sortedValues(v.members) }

// Placement returns the placement of a shard.
func (v *View) Placement(shard sharding.ShardID) (Placement, bool) {
	p, ok := v.placements[shard]
	return p, ok
}

// Placements returns all placements, sorted by shard.
func (v *View) Placements() []Placement { return sortedValues(v.placements) }

// ReplicaNode returns the node on which a replica of the shard is placed.
func (v *View) ReplicaNode(shard sharding.ShardID, id sharding.ReplicaID) (sharding.NodeID, bool) {
	r, ok := v.placements[shard].Replica(id)
	return r.Node, ok
}

// NextReplica returns the id that the next replica will get. Replicas with this
// or a higher id are newer than the view.
func (v *View) NextReplica() sharding.ReplicaID { return v.counters.NextReplica }

// HostedReplica is a replica that a node's disk holds or should hold.
type HostedReplica struct {
	Shard   sharding.ShardID
	Replica Replica
	// First are the first voters of the shard's group, with which the replica
	// must be created.
	First []sharding.ReplicaID
}

// HostedBy returns the replicas that the node should hold, sorted by shard.
// Once the node has caught up with the metadata, all other replicas on its disk
// are obsolete, including replicas of these shards under different ids.
func (v *View) HostedBy(node sharding.NodeID) []HostedReplica {
	var out []HostedReplica
	for _, p := range v.placements {
		if r, ok := p.ReplicaOn(node); ok {
			out = append(out, HostedReplica{Shard: p.Shard, Replica: r, First: p.First})
		}
	}
	slices.SortFunc(out, func(a, b HostedReplica) int { return cmp.Compare(a.Shard, b.Shard) })
	return out
}

// Module returns a module by digest.
func (v *View) Module(digest Digest) (Module, bool) {
	m, ok := v.modules[digest]
	return m, ok
}

// Modules returns all modules, sorted by upload time and digest.
func (v *View) Modules() []Module {
	all := slices.Collect(maps.Values(v.modules))
	slices.SortFunc(all, func(a, b Module) int {
		return cmp.Or(cmp.Compare(a.UploadedAt, b.UploadedAt), slices.Compare(a.Digest[:], b.Digest[:]))
	})
	return all
}

// Binding returns the binding of an entity type.
func (v *View) Activation(entityType string) (Activation, bool) {
	b, ok := v.activations[entityType]
	return b, ok
}

// Bindings returns all bindings, sorted by entity type.
func (v *View) Activations() []Activation { return sortedValues(v.activations) }

// ShardKey returns the rule that places the entities of a type, and false if
// the type was never bound.
func (v *View) ShardKey(entityType string) (sharding.KeyRule, bool) {
	b, ok := v.activations[entityType]
	return b.ShardKey, ok
}

// Setting returns a setting.
func (v *View) Setting(key string) (Setting, bool) {
	s, ok := v.settings[key]
	return s, ok
}

// SettingRevision returns the revision of the latest change of a setting,
// including removals.
func (v *View) SettingRevision() uint64 { return v.counters.SettingRevision }

// Policy returns the cluster's policy. If none was set, it returns
// DefaultPolicy and false.
func (v *View) Policy() (Policy, bool) {
	if v.policy == nil {
		return DefaultPolicy, false
	}
	return *v.policy, true
}

// SettingKeys returns the keys of all settings, sorted.
func (v *View) SettingKeys() []string { return slices.Sorted(maps.Keys(v.settings)) }

// sortedValues returns the map's values in key order.
func sortedValues[K cmp.Ordered, V any](m map[K]V) []V {
	out := make([]V, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}
