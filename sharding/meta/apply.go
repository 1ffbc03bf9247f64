package meta

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// transition carries one command from a view to the next. view is this
// transition's own copy; its maps are shared with earlier views and are
// replaced, never changed.
type transition struct {
	view   *View
	writes []KV
}

func (t *transition) apply(body []byte) (Result, error) {
	c, err := decode(body)
	if err != nil {
		return Result{}, err
	}
	if !t.view.created && c.Op != opCreateCluster {
		return Result{}, ErrNoCluster
	}
	switch {
	case c.Op == opCreateCluster && c.Cluster != nil && c.Founder != nil:
		return Result{}, t.createCluster(*c.Cluster, *c.Founder)
	case c.Op == opPutMember && c.Member != nil:
		return Result{}, t.putMember(*c.Member)
	case c.Op == opPlace && len(c.Place) > 0:
		return t.place(c.Place)
	case c.Op == opPutModule && c.Module != nil:
		return Result{}, t.putModule(*c.Module)
	case c.Op == opBind && c.Digest != nil:
		return t.bind(c.EntityType, *c.Digest, c.At)
	case c.Op == opRollback:
		return t.rollback(c.EntityType, c.At)
	case c.Op == opPutSetting && c.Setting != nil:
		return Result{}, t.putSetting(*c.Setting)
	}
	return Result{}, fmt.Errorf("%w: operation %.40q is unknown or incomplete", ErrInvalid, c.Op)
}

func (t *transition) store(key string, value any) {
	t.writes = append(t.writes, KV{Key: []byte(key), Value: wrap(value)})
}

func (t *transition) storeCounters() {
	t.store(keyCounters, counters{NextReplica: t.view.nextReplica, Revision: t.view.revision})
}

func (t *transition) createCluster(c Cluster, founder Member) error {
	if t.view.created {
		if t.view.cluster == c {
			return nil
		}
		return fmt.Errorf("%w: %s", ErrClusterExists, t.view.cluster.ID)
	}
	if err := checkName("cluster id", c.ID, maxNodeIDBytes); err != nil {
		return err
	}
	if c.Format == 0 {
		return fmt.Errorf("%w: format 0", ErrInvalid)
	}
	if c.Shards == 0 || c.Shards > MaxShards {
		return fmt.Errorf("%w: %d shards, 1 to %d are allowed", ErrInvalid, c.Shards, MaxShards)
	}
	if err := checkMember(founder); err != nil {
		return err
	}
	t.view.cluster, t.view.created = c, true
	t.store(keyCluster, c)
	put(&t.view.members, founder.Node, founder)
	t.store(prefixMember+string(founder.Node), founder)
	t.view.placements = maps.Clone(t.view.placements)
	t.allocate(PlaceOn{Shard: sharding.MetaShard, Nodes: []sharding.NodeID{founder.Node}})
	t.storeCounters()
	return nil
}

func (t *transition) putMember(m Member) error {
	if err := checkMember(m); err != nil {
		return err
	}
	old, known := t.view.members[m.Node]
	if known && old == m {
		return nil
	}
	if !known && len(t.view.members) >= MaxMembers {
		return fmt.Errorf("%w: the cluster has %d members already", ErrInvalid, MaxMembers)
	}
	put(&t.view.members, m.Node, m)
	t.store(prefixMember+string(m.Node), m)
	return nil
}

func (t *transition) place(asked []PlaceOn) (Result, error) {
	for _, on := range asked {
		if err := t.checkPlaceOn(on); err != nil {
			return Result{}, err
		}
	}
	t.view.placements = maps.Clone(t.view.placements)
	first := t.view.nextReplica
	res := Result{Placements: make([]Placement, 0, len(asked))}
	for _, on := range asked {
		p, placed := t.view.placements[on.Shard]
		if !placed {
			p = t.allocate(on)
		}
		res.Placements = append(res.Placements, p)
	}
	if t.view.nextReplica != first {
		t.storeCounters()
	}
	return res, nil
}

func (t *transition) checkPlaceOn(on PlaceOn) error {
	if uint32(on.Shard) > t.view.cluster.Shards {
		return fmt.Errorf("%w: %d, the cluster has %d", ErrUnknownShard, on.Shard, t.view.cluster.Shards)
	}
	if len(on.Nodes) == 0 || len(on.Nodes) > MaxReplicas {
		return fmt.Errorf("%w: %d replicas of shard %d, 1 to %d are allowed", ErrInvalid, len(on.Nodes), on.Shard, MaxReplicas)
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

// allocate gives the shard's replicas the next numbers of the counter. The
// counter only counts up, so no replica id is ever used twice. The caller has
// made the map of placements its own.
func (t *transition) allocate(on PlaceOn) Placement {
	p := Placement{Shard: on.Shard, Replicas: make([]Replica, 0, len(on.Nodes))}
	for _, node := range on.Nodes {
		p.Replicas = append(p.Replicas, Replica{ID: t.view.nextReplica, Node: node})
		t.view.nextReplica++
	}
	t.view.placements[on.Shard] = p
	t.store(shardKey(on.Shard), p)
	return p
}

func (t *transition) putModule(m Module) error {
	if _, known := t.view.modules[m.Digest]; known {
		return nil
	}
	if len(t.view.modules) >= MaxModules {
		return fmt.Errorf("%w: the cluster has %d modules already", ErrInvalid, MaxModules)
	}
	if m.Size <= 0 {
		return fmt.Errorf("%w: a module of %d bytes", ErrInvalid, m.Size)
	}
	if err := checkText("module name", m.Name, maxNameBytes); err != nil {
		return err
	}
	if err := checkText("module version", m.Version, maxNameBytes); err != nil {
		return err
	}
	if len(m.EntityTypes) == 0 || len(m.EntityTypes) > MaxTypesPerModule {
		return fmt.Errorf("%w: a module of %d entity types, 1 to %d are allowed", ErrInvalid, len(m.EntityTypes), MaxTypesPerModule)
	}
	for i, typ := range m.EntityTypes {
		if err := sharding.ValidateEntityType(typ); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if slices.Contains(m.EntityTypes[:i], typ) {
			return fmt.Errorf("%w: the module names entity type %s twice", ErrInvalid, typ)
		}
	}
	put(&t.view.modules, m.Digest, m)
	t.store(prefixModule+m.Digest.String(), m)
	return nil
}

func (t *transition) bind(entityType string, digest Digest, at int64) (Result, error) {
	m, known := t.view.modules[digest]
	if !known {
		return Result{}, fmt.Errorf("%w: %s", ErrUnknownModule, digest)
	}
	place := slices.Index(m.EntityTypes, entityType)
	if place < 0 {
		return Result{}, fmt.Errorf("%w: the module does not serve %.64q", ErrUnknownType, entityType)
	}
	b, bound := t.view.bindings[entityType]
	switch {
	case bound && b.Digest == digest:
		return Result{Revision: b.Revision}, nil
	case bound:
		b.History = append(slices.Clone(b.History), b.Bound)
		if over := len(b.History) - MaxBindingHistory; over > 0 {
			b.History = b.History[over:]
		}
	case len(t.view.bindings) >= MaxBindings:
		return Result{}, fmt.Errorf("%w: the cluster has %d entity types already", ErrInvalid, MaxBindings)
	}
	b.EntityType = entityType
	return t.rebind(b, Bound{Digest: digest, TypeIndex: place, At: at}), nil
}

func (t *transition) rollback(entityType string, at int64) (Result, error) {
	b, bound := t.view.bindings[entityType]
	if !bound {
		return Result{}, fmt.Errorf("%w: %.64q", ErrUnknownType, entityType)
	}
	last := len(b.History) - 1
	if last < 0 {
		return Result{}, fmt.Errorf("%w: %s", ErrNoPrevious, entityType)
	}
	previous := b.History[last]
	previous.At = at
	b.History = slices.Clone(b.History[:last])
	return t.rebind(b, previous), nil
}

// rebind makes to what serves b's entity type, under the next revision.
func (t *transition) rebind(b Binding, to Bound) Result {
	t.view.revision++
	to.Revision = t.view.revision
	b.Bound = to
	put(&t.view.bindings, b.EntityType, b)
	t.store(prefixBinding+b.EntityType, b)
	t.storeCounters()
	return Result{Revision: to.Revision}
}

func (t *transition) putSetting(s settingSet) error {
	if err := checkName("setting", s.Key, MaxSettingKeyBytes); err != nil {
		return err
	}
	_, known := t.view.settings[s.Key]
	key := []byte(prefixSetting + s.Key)
	if s.Delete {
		if known {
			next := maps.Clone(t.view.settings)
			delete(next, s.Key)
			t.view.settings = next
			t.writes = append(t.writes, KV{Key: key})
		}
		return nil
	}
	if len(s.Value) > MaxSettingValueBytes {
		return fmt.Errorf("%w: a setting of %d bytes, at most %d are allowed", ErrInvalid, len(s.Value), MaxSettingValueBytes)
	}
	if !known && len(t.view.settings) >= MaxSettings {
		return fmt.Errorf("%w: the cluster has %d settings already", ErrInvalid, MaxSettings)
	}
	value := append([]byte{}, s.Value...)
	put(&t.view.settings, s.Key, value)
	t.writes = append(t.writes, KV{Key: key, Value: wrap(value)})
	return nil
}
