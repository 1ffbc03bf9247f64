package meta

import (
	"cmp"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
)

// View is the metadata as of one log index. It is immutable and shared:
// nothing that it returns may be modified, and any goroutine may read it.
type View struct {
	index      uint64
	cluster    Cluster
	created    bool
	counters   counters
	policy     *Policy                 // nil until set
	level      sharding.ClusterVersion // 0 until raised
	members    map[sharding.NodeID]Member
	downed     map[sharding.NodeID]uint64   // incarnations, of no members
	left       map[sharding.NodeID]leftNode // no members, that nobody put down
	placements map[sharding.ShardID]Placement
	modules    map[Digest]Module
	bindings   map[string]Binding
	verified   map[string]verifiedList // by entity type
	settings   map[string]Setting

	roles        map[string]access.Role
	roleBindings map[string]access.Binding // by subject
	tokens       map[string]access.Token
}

// Index returns the log index of the last command applied since the state was
// made, or that it was loaded at; 0 right after a restore.
func (v *View) Index() uint64 { return v.index }

// Cluster returns the cluster's identity; false until it is created.
func (v *View) Cluster() (Cluster, bool) { return v.cluster, v.created }

// Revision returns the revision of the newest binding change. It counts up by
// one with each of them, over all entity types.
func (v *View) Revision() uint64 { return v.counters.Revision }

// Member returns a member by node id.
func (v *View) Member(node sharding.NodeID) (Member, bool) {
	m, ok := v.members[node]
	return m, ok
}

// Members returns all members by node id.
func (v *View) Members() []Member { return sorted(v.members) }

// Placement returns where a shard's replicas live.
func (v *View) Placement(shard sharding.ShardID) (Placement, bool) {
	p, ok := v.placements[shard]
	return p, ok
}

// Placements returns all placements by shard.
func (v *View) Placements() []Placement { return sorted(v.placements) }

// ReplicaNode returns the node that a replica of the shard is placed on.
func (v *View) ReplicaNode(shard sharding.ShardID, id sharding.ReplicaID) (sharding.NodeID, bool) {
	r, ok := v.placements[shard].Replica(id)
	return r.Node, ok
}

// NextReplica is the id that the next replica will get: an id from there on is
// newer than the view.
func (v *View) NextReplica() sharding.ReplicaID { return v.counters.NextReplica }

// Hosted is a replica that a node's disk holds or is to hold.
type Hosted struct {
	Shard   sharding.ShardID
	Replica Replica
	// First are the shard group's first voters, to create the replica with.
	First []sharding.ReplicaID
}

// HostedBy returns what the node is to hold, by shard. Whatever else is on its
// disk, and a replica of one of these shards under another id, is void once
// the node has caught up with the metadata.
func (v *View) HostedBy(node sharding.NodeID) []Hosted {
	var out []Hosted
	for _, p := range v.placements {
		if r, ok := p.On(node); ok {
			out = append(out, Hosted{Shard: p.Shard, Replica: r, First: p.First})
		}
	}
	slices.SortFunc(out, func(a, b Hosted) int { return cmp.Compare(a.Shard, b.Shard) })
	return out
}

// Module returns a module by digest.
func (v *View) Module(digest Digest) (Module, bool) {
	m, ok := v.modules[digest]
	return m, ok
}

// Modules returns all modules, oldest upload first, then by digest.
func (v *View) Modules() []Module {
	all := slices.Collect(maps.Values(v.modules))
	slices.SortFunc(all, func(a, b Module) int {
		return cmp.Or(cmp.Compare(a.UploadedAt, b.UploadedAt), slices.Compare(a.Digest[:], b.Digest[:]))
	})
	return all
}

// Binding returns the module that serves an entity type.
func (v *View) Binding(entityType string) (Binding, bool) {
	b, ok := v.bindings[entityType]
	return b, ok
}

// Bindings returns all bindings by entity type.
func (v *View) Bindings() []Binding { return sorted(v.bindings) }

// ShardKey returns the rule that places the entities of a type; false where the
// type was never bound.
func (v *View) ShardKey(entityType string) (sharding.KeyRule, bool) {
	b, ok := v.bindings[entityType]
	return b.ShardKey, ok
}

// Setting returns a setting.
func (v *View) Setting(key string) (Setting, bool) {
	s, ok := v.settings[key]
	return s, ok
}

// SettingRevision returns the revision of the newest change of a setting,
// removals included.
func (v *View) SettingRevision() uint64 { return v.counters.SettingRevision }

// Policy returns the cluster's policy; false while none was set, and it is
// DefaultPolicy then.
func (v *View) Policy() (Policy, bool) {
	if v.policy == nil {
		return DefaultPolicy, false
	}
	return *v.policy, true
}

// SettingKeys returns the keys of all settings, sorted.
func (v *View) SettingKeys() []string { return slices.Sorted(maps.Keys(v.settings)) }

// sorted returns the map's values in the order of their keys.
func sorted[K cmp.Ordered, V any](m map[K]V) []V {
	out := make([]V, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, m[k])
	}
	return out
}
