package meta

import (
	"cmp"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// View is the metadata as of one log index. It is immutable and shared:
// nothing that it returns may be modified, and any goroutine may read it.
type View struct {
	index       uint64
	cluster     Cluster
	created     bool
	nextReplica sharding.ReplicaID // the next id to hand out
	revision    uint64             // of the newest binding change
	members     map[sharding.NodeID]Member
	placements  map[sharding.ShardID]Placement
	modules     map[Digest]Module
	bindings    map[string]Binding
	settings    map[string][]byte
}

// Index returns the log index of the last command applied since the state was
// made; 0 right after a restore.
func (v *View) Index() uint64 { return v.index }

// Cluster returns the cluster's identity; false until it is created.
func (v *View) Cluster() (Cluster, bool) { return v.cluster, v.created }

// Revision returns the revision of the newest binding change. It counts up by
// one with each of them, over all entity types.
func (v *View) Revision() uint64 { return v.revision }

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

// Setting returns a setting's value.
func (v *View) Setting(key string) ([]byte, bool) {
	value, ok := v.settings[key]
	return value, ok
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
