package host

import (
	"context"
	"fmt"

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
	s := &servedType{
		Type: entity.Type{
			Name: t.Name, Index: uint32(index), Digest: journal.Digest(b.Digest), Revision: b.Revision,
			Commands: names(t.Commands), Queries: names(t.Queries),
			Durable: t.Kind == manifest.DurableState, SnapshotEvery: t.SnapshotEvery, PassivateAfter: t.PassivateAfter,
			Instantiate: func(ctx context.Context) (entity.Guest, error) {
				g, err := m.Instantiate(ctx)
				if err != nil {
					return nil, err
				}
				return guest{g}, nil
			},
		},
		rpc: rpc.Type{Encoding: rpc.JSON, Module: journal.Digest(b.Digest)},
	}
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
type guest struct{ *engine.Instance }

func (g guest) Load(typeIndex uint32, handle uint64, frames []byte) (bool, error) {
	status, err := g.Instance.Load(typeIndex, handle, frames)
	return status == abi.LoadDone, err
}

func (g guest) Handle(handle uint64, frames []byte, env entity.Env) ([]byte, error) {
	return g.Instance.Handle(handle, frames, engine.Env{Now: env.Now, Seed: env.Seed})
}

func (g guest) Query(handle uint64, frames []byte, env entity.Env) ([]byte, error) {
	return g.Instance.Query(handle, frames, engine.Env{Now: env.Now, Seed: env.Seed})
}
