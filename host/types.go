package host

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// servedType is an entity type that this node serves, as the lanes and as the
// server know it.
type servedType struct {
	entity.Type
	rpc rpc.Type
}

// loadType compiles the module of a binding.
func (n *Node) loadType(ctx context.Context, b meta.Binding) (*servedType, error) {
	m, err := n.module(ctx, journal.Digest(b.Digest), "")
	if err != nil {
		return nil, err
	}
	t, index, ok := m.Manifest().Type(b.EntityType)
	if !ok {
		return nil, fmt.Errorf("module %s does not serve entity type %s", b.Digest, b.EntityType)
	}
	bounds := memoryBounds(b.Limits)
	s := &servedType{
		Type: entity.Type{
			Name: t.Name, Index: uint32(index), Digest: journal.Digest(b.Digest), Revision: b.Revision,
			Commands: names(t.Commands), Queries: names(t.Queries),
			Durable: t.Kind == manifest.DurableState, Remember: t.RememberEntities || t.Singleton, Singleton: t.Singleton, Transient: t.Kind == manifest.Transient, SnapshotEvery: t.SnapshotEvery, SnapshotKeep: t.RetainSnapshots, Retain: t.RetainEvents.Snapshots(), PassivateAfter: t.PassivateAfter,
			Instantiate: func(ctx context.Context) (entity.Guest, error) {
				g, err := m.InstantiateWith(ctx, bounds)
				if err != nil {
					n.faults.count(err)
					return nil, err
				}
				return &guest{Instance: g, faults: &n.faults}, nil
			},
		},
		rpc: rpc.Type{Encoding: rpc.JSON, Module: journal.Digest(b.Digest), Revision: b.Revision, Limits: rpc.Limits(b.Limits)},
	}
	s.limit(n.engine.Limits(), b.Limits)
	s.boundMemory(m, bounds)
	if t.Encoding == manifest.Bytes {
		s.rpc.Encoding = rpc.Bytes
	}
	return s, nil
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

// guest lets lanes drive an engine's instance.
type guest struct {
	*engine.Instance
	faults *faultCounts
	fuel   int64 // the budget that was set last; 0 is the engine's
}

// limit holds the type to its own limits where they are below the node's.
func (s *servedType) limit(node abi.Limits, own meta.Limits) {
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
}

// memoryBounds are what a type's instances on this node are made with.
func memoryBounds(own meta.Limits) engine.InstanceOptions {
	opts := engine.InstanceOptions{MemoryBytes: own.MemoryBytes}
	if own.TypeMemoryBytes > 0 {
		opts.Memory = engine.NewMemoryBudget(own.TypeMemoryBytes)
	}
	return opts
}

// boundMemory gives a type with bounds of memory instances of its own, and has
// entities go elsewhere before one of them is full to its bound: a guest may
// not survive that.
func (s *servedType) boundMemory(m *engine.Module, b engine.InstanceOptions) {
	s.OwnInstances = b.MemoryBytes > 0 || b.Memory != nil
	s.FullAt = b.MemoryBytes * 3 / 4
	if b.Memory != nil {
		least := m.InstanceBytes()
		s.NoRoom = func() bool { return b.Memory.Left() < least }
	}
}

// env is what the engine gives the guest, within the call's own budget.
func (g *guest) env(env entity.Env) engine.Env {
	if env.Fuel != g.fuel {
		g.fuel = env.Fuel
		g.SetBudgets(engine.Budgets{Command: env.Fuel, Query: env.Fuel})
	}
	return engine.Env{Now: env.Now, Seed: env.Seed, Deadline: env.Deadline, Long: env.Long}
}

func (g *guest) Load(typeIndex uint32, handle uint64, frames []byte) (bool, error) {
	status, err := g.Instance.Load(typeIndex, handle, frames)
	return status == abi.LoadDone, g.ended(err)
}

func (g *guest) Apply(handle uint64, frames []byte) error {
	return g.ended(g.Instance.Apply(handle, frames))
}

func (g *guest) Snapshot(handle uint64) ([]byte, error) {
	out, err := g.Instance.Snapshot(handle)
	return out, g.ended(err)
}

func (g *guest) Drop(handle uint64) error { return g.ended(g.Instance.Drop(handle)) }

func (g *guest) Handle(handle uint64, frames []byte, env entity.Env) ([]byte, error) {
	out, err := g.Instance.Handle(handle, frames, g.env(env))
	return out, g.ended(err)
}

func (g *guest) Query(handle uint64, frames []byte, env entity.Env) ([]byte, error) {
	out, err := g.Instance.Query(handle, frames, g.env(env))
	return out, g.ended(err)
}

// ended counts a fault of the guest, and says in the lanes' words that a call
// was cut off.
func (g *guest) ended(err error) error {
	if err == nil {
		return nil
	}
	switch {
	case errors.Is(err, engine.ErrDeadline):
		return entity.ErrDeadline
	case errors.Is(err, engine.ErrInterrupted):
		return entity.ErrStopped
	}
	g.faults.count(err)
	return err
}

// faultCounts are a node's guest faults by kind.
type faultCounts [engine.FaultKinds]atomic.Uint64

func (f *faultCounts) count(err error) {
	var fault *engine.Fault
	if errors.As(err, &fault) {
		f[fault.Kind].Add(1)
	}
}
