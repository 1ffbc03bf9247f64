package modules

import (
	"context"
	"fmt"
	"slices"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// Served is an entity type that this node serves, as executors and the server
// see it.
type Served struct {
	entity.Type
	API Type

	bounds guest.InstanceOptions // memory limits
	newer  *Served               // the Served of Canary; nil if Canary has no Type
}

// serve returns the Served of an activation, and reuses the previous one if
// nothing has changed. If the module of its rollout cannot be loaded, the
// entities of the rollout's part are not served, and serve returns the result
// together with the error.
func (t *Types) serve(ctx context.Context, view *meta.View, b meta.Activation, was *Served) (*Served, error) {
	if was != nil && was.Revision == b.Revision && was.WritesPaused == (b.PausedSince != 0) && was.Digest == journal.Digest(b.Digest) && (was.Canary != nil) == b.Rollout.IsServing() && (was.Canary == nil || was.newer != nil) {
		return was, nil
	}
	bound := b.Bound
	bound.Truncated = b.TruncatedModules()
	s, err := t.makeServed(ctx, b, bound, was)
	if err != nil {
		return nil, err
	}
	s.WritesPaused = b.PausedSince != 0
	if !b.Rollout.IsServing() {
		s.Counts.Watch(0)
		return s, nil
	}
	r := b.Rollout
	s.Counts.Watch(r.Began)
	s.Canary = &entity.Canary{Part: r}
	if m, _ := view.Module(r.Digest); t.modules.trust.Mode() == signing.Require {
		if _, fault := trustedKey(t.modules.trust.Keys(), m); fault != "" {
			t.logger.Error("a part of an entity type is not served because this node does not trust its module's signature", "entity_type", b.EntityType, "digest", r.Digest.String(), "reason", string(fault))
			return s, nil
		}
	}
	if was == nil {
		was = s // s has the memory limits of the type
	}
	n, err := t.makeServed(ctx, b, meta.Bound{Digest: r.Digest, Revision: b.Revision, ForcedBy: r.ForcedBy, Snapshots: r.Snapshots, Truncated: b.RolloutTruncatedModules()}, was)
	if err != nil {
		return s, err
	}
	n.Rate, n.FuelBudget, n.BytesBudget = s.Rate, s.FuelBudget, s.BytesBudget
	n.WritesPaused = r.State == meta.RolloutHeld
	n.Counts.Watch(r.Began)
	s.newer, s.Canary.Type = n, &n.Type
	return s, nil
}

// makeServed returns the Served of b's type for the module in by. It reuses
// was or was.newer, with a new revision, if everything else is equal.
func (t *Types) makeServed(ctx context.Context, b meta.Activation, by meta.Bound, was *Served) (*Served, error) {
	for _, s := range []*Served{was, was.canary()} {
		if s == nil || s.Digest != journal.Digest(by.Digest) || s.API.Limits != Limits(b.Limits) || !slices.Equal(s.Snapshots.Modules, digests(by.Snapshots)) || !slices.Equal(s.Snapshots.IfTruncated, digests(by.Truncated)) {
			continue
		}
		again := *s
		again.Revision, again.API.Revision, again.API.ForcedBy = by.Revision, by.Revision, by.ForcedBy
		again.Canary, again.newer, again.WritesPaused = nil, nil, false
		return &again, nil
	}
	bounds := memoryBounds(b.Limits)
	if was != nil && was.API.Limits == Limits(b.Limits) {
		bounds = was.bounds
	}
	b.Bound = by
	return t.load(ctx, b, bounds)
}

// Newer returns the Served of the newer module of a rollout, which serves a
// part of the type. It is nil without a rollout, or if the module cannot be
// loaded.
func (s *Served) Newer() *Served { return s.newer }

// canary returns the Served of the newer module, or nil.
func (s *Served) canary() *Served {
	if s == nil {
		return nil
	}
	return s.newer
}

// load compiles the module of an activation.
func (t *Types) load(ctx context.Context, b meta.Activation, bounds guest.InstanceOptions) (*Served, error) {
	m, err := t.modules.Module(ctx, journal.Digest(b.Digest), "")
	if err != nil {
		return nil, err
	}
	about, index, ok := m.Manifest().Type(b.EntityType)
	if !ok {
		return nil, fmt.Errorf("module %s does not serve entity type %s", b.Digest, b.EntityType)
	}
	s := &Served{
		bounds: bounds,
		Type: entity.Type{
			Name: about.Name, Index: uint32(index), Digest: journal.Digest(b.Digest), Revision: b.Revision, CanaryStage: entity.CanaryStage{Made: b.Revision}, Snapshots: entity.ForeignSnapshots{Modules: digests(b.Snapshots), IfTruncated: digests(b.Truncated)},
			TypeInputs: t.inputs(m.Manifest(), about),
			TypeRoutes: entity.TypeRoutes{States: about.States(), Internal: internal(about.Commands), MessagesTo: about.Sends, MessagesFrom: about.AcceptsFrom, Owners: ownersOf{t, b.EntityType}, RecordPrincipal: about.RecordPrincipal},
			Durable:    about.Kind == manifest.DurableState, AlwaysOn: about.AlwaysOn || about.Singleton, Singleton: about.Singleton, Transient: about.Kind == manifest.Transient, Workflow: about.Kind == manifest.Workflow, SnapshotEvery: about.SnapshotEvery, SnapshotKeep: about.RetainSnapshots, Retain: about.RetainEvents.Snapshots(), PassivateAfter: about.PassivateAfter,
			Counts: &trial.Counter{},
			Instantiate: func(ctx context.Context) (entity.Guest, error) {
				return t.instantiate(ctx, m, bounds, journal.Digest(b.Digest), about.Name)
			},
		},
		API: Type{Encoding: request.JSON, Module: journal.Digest(b.Digest), Revision: b.Revision, Limits: Limits(b.Limits), ForcedBy: b.ForcedBy, Sends: about.Sends, AcceptsFrom: about.AcceptsFrom, Owners: ownersOf{t, b.EntityType}},
	}
	if s.Snapshots.Versions, err = t.stateVersions(ctx, &s.Type); err != nil {
		return nil, err
	}
	s.limit(t.limits, b.Limits)
	s.boundMemory(m, bounds)
	if about.Encoding == manifest.Bytes {
		s.API.Encoding = request.Bytes
	}
	if s.Workflow {
		s.SnapshotEvery = -1
	}
	return s, nil
}

// stateVersions returns the state versions in the snapshots of other modules
// that a type's module loads, as the manifests of these modules declare them.
// It returns nil if the module reads only one version.
func (t *Types) stateVersions(ctx context.Context, b *entity.Type) (map[journal.Digest]int, error) {
	if b.Durable || !b.States.Migrates() {
		return nil, nil
	}
	out := map[journal.Digest]int{}
	for _, digest := range slices.Concat(b.Snapshots.Modules, b.Snapshots.IfTruncated) {
		if _, known := t.metadata.View().Module(meta.Digest(digest)); !known {
			continue // an earlier release removed the module, although its snapshots are still needed
		}
		m, err := t.modules.Module(ctx, digest, "")
		if err != nil {
			return nil, fmt.Errorf("read the state version of module %s: %w", digest, err)
		}
		if about, _, ok := m.Manifest().Type(b.Name); ok {
			states := about.States()
			out[digest] = states.Version()
		}
	}
	return out, nil
}

func digests(list []meta.Digest) (out []journal.Digest) {
	for _, d := range list {
		out = append(out, journal.Digest(d))
	}
	return out
}

func names(list []manifest.Named) map[string]bool {
	if list == nil {
		return nil
	}
	out := make(map[string]bool, len(list))
	for _, n := range list {
		out[n.Name] = true
	}
	return out
}

// internal returns the names of the internal commands in a list.
func internal(list []manifest.Named) map[string]bool {
	out := map[string]bool{}
	for _, n := range list {
		if n.Internal {
			out[n.Name] = true
		}
	}
	return out
}

// limit applies the type's own limits if they are below the node's.
func (s *Served) limit(node abi.Limits, own meta.Limits) {
	s.CommandFuel = min(own.CommandFuel, int64(node.CommandFuel))
	s.QueryFuel = min(own.QueryFuel, int64(node.QueryFuel))
	for _, l := range []struct {
		value *int
		own   int64
	}{{&node.CommandEvents, own.MaxEvents}, {&node.EventBytes, own.EventBytes}, {&node.ReplyBytes, own.ReplyBytes}} {
		if l.own > 0 && l.own < int64(*l.value) {
			*l.value = int(l.own)
		}
	}
	s.Limits = &node
	s.Rate = entity.NewRate(own.RatePerSecond)
	s.FuelBudget, s.BytesBudget = entity.NewBudget(own.FuelPerSecond), entity.NewBudget(own.BytesPerSecond)
}

// memoryBounds returns the options of a type's instances on this node.
func memoryBounds(own meta.Limits) guest.InstanceOptions {
	opts := guest.InstanceOptions{MemoryBytes: own.MemoryBytes}
	if own.TypeMemoryBytes > 0 {
		opts.Memory = guest.NewMemoryBudget(own.TypeMemoryBytes)
	}
	return opts
}

// MemoryBounds returns the options of an instance outside of the executors: it
// has the same limits, but does not share the memory budget of the serving
// instances.
func (s *Served) MemoryBounds() guest.InstanceOptions {
	return memoryBounds(meta.Limits(s.API.Limits))
}

// CheckMemory returns an error if a module does not start within the type's memory
// limits.
func (s *Served) CheckMemory(ctx context.Context, m *guest.Module) error {
	return startsWithin(ctx, m, meta.Limits(s.API.Limits))
}

// boundMemory gives a type with memory limits its own instances. Entities move
// to another instance before one reaches its limit, because a guest may not
// survive that.
func (s *Served) boundMemory(m *guest.Module, b guest.InstanceOptions) {
	s.OwnInstances = b.MemoryBytes > 0 || b.Memory != nil
	s.FullAt = b.MemoryBytes * 3 / 4
	if b.Memory != nil {
		least := m.InstanceBytes()
		s.Memory = instanceRoom{b.Memory, least}
	}
}

// instanceRoom is a memory budget for instances that need at least a given
// number of bytes.
type instanceRoom struct {
	budget *guest.MemoryBudget
	least  int64
}

func (r instanceRoom) HasRoom() bool { return r.budget.Free() >= r.least }
