package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

type moduleService struct{ n *Node }

// Upload keeps a module that compiles and describes itself: its bytes in the
// registries of a majority of the nodes first, then what it is in the metadata.
func (s moduleService) Upload(ctx context.Context, wasm []byte) (rpc.Module, error) {
	n := s.n
	if n.disk.readOnly.Load() {
		return rpc.Module{}, entity.ErrReadOnly
	}
	if _, err := n.engine.Admit(wasm); err != nil {
		return rpc.Module{}, invalidModule(err)
	}
	digest, stored, err := n.modules.Put(wasm)
	if err != nil {
		return rpc.Module{}, err
	}
	m, err := n.modules.Module(ctx, digest)
	if err != nil {
		if stored {
			err = errors.Join(err, n.modules.Remove(digest))
		}
		return rpc.Module{}, invalidModule(err)
	}
	mod := meta.Module{
		Digest: meta.Digest(digest), Size: int64(len(wasm)), Name: m.Manifest().Name, Version: m.Manifest().Version,
		UploadedAt: time.Now().UnixNano(),
	}
	for _, t := range m.Manifest().EntityTypes {
		mod.EntityTypes = append(mod.EntityTypes, t.Name)
		if t.ShardKey != (manifest.ShardKey{}) {
			if mod.ShardKeys == nil {
				mod.ShardKeys = make(map[string]sharding.KeyRule)
			}
			mod.ShardKeys[t.Name] = sharding.KeyRule(t.ShardKey)
		}
	}
	if err := n.spread(ctx, digest, wasm); err != nil {
		return rpc.Module{}, err
	}
	if _, err := n.metadata.Do(ctx, meta.PutModule(mod)); err != nil {
		if errors.Is(err, meta.ErrInvalid) {
			return rpc.Module{}, &rpc.InvalidModuleError{Reason: err.Error()}
		}
		return rpc.Module{}, err
	}
	return s.Get(ctx, digest)
}

// invalidModule tells the uploader's faults from the node's.
func invalidModule(err error) error {
	var refused *engine.AdmissionError
	var fault *engine.Fault
	if errors.As(err, &refused) || errors.As(err, &fault) || errors.Is(err, manifest.ErrInvalid) {
		return &rpc.InvalidModuleError{Reason: err.Error()}
	}
	return err
}

func (s moduleService) List(context.Context) ([]rpc.Module, error) {
	modules := s.n.metadata.View().Modules()
	out := make([]rpc.Module, 0, len(modules))
	for i := len(modules) - 1; i >= 0; i-- {
		out = append(out, describe(modules[i]))
	}
	return out, nil
}

func describe(m meta.Module) rpc.Module {
	return rpc.Module{
		Digest: journal.Digest(m.Digest), Name: m.Name, Version: m.Version, SizeBytes: m.Size,
		UploadedAt: time.Unix(0, m.UploadedAt), EntityTypes: m.EntityTypes,
	}
}

// known is a module of the metadata. That there is none is said only by a node
// that has caught up: what was just stored is applied where it was decided, and
// maybe not here yet.
func (s moduleService) known(ctx context.Context, digest journal.Digest) (meta.Module, error) {
	m, ok := s.n.metadata.View().Module(meta.Digest(digest))
	if ok {
		return m, nil
	}
	if err := s.n.metadata.CatchUp(ctx); err != nil {
		return meta.Module{}, err
	}
	if m, ok = s.n.metadata.View().Module(meta.Digest(digest)); !ok {
		return meta.Module{}, rpc.ErrUnknownModule
	}
	return m, nil
}

func (s moduleService) Get(ctx context.Context, digest journal.Digest) (rpc.Module, error) {
	m, err := s.known(ctx, digest)
	if err != nil {
		return rpc.Module{}, err
	}
	out := describe(m)
	compiled, err := s.n.module(ctx, digest, "")
	if err != nil {
		return rpc.Module{}, err
	}
	if out.Manifest, err = json.Marshal(compiled.Manifest()); err != nil {
		return rpc.Module{}, fmt.Errorf("describe module %s: %w", digest, err)
	}
	return out, nil
}

func (s moduleService) Download(ctx context.Context, digest journal.Digest) ([]byte, error) {
	if _, err := s.known(ctx, digest); err != nil {
		return nil, err
	}
	if err := s.n.fetch(ctx, digest, ""); err != nil {
		return nil, err
	}
	return s.n.modules.Get(digest)
}

// fits makes an instance under a type's limits of memory: a module that cannot
// even start under them would never serve.
func fits(ctx context.Context, m *engine.Module, l meta.Limits) error {
	if l.MemoryBytes == 0 && l.TypeMemoryBytes == 0 {
		return nil
	}
	g, err := m.InstantiateWith(ctx, memoryBounds(l))
	if err != nil {
		return &rpc.InvalidModuleError{Reason: fmt.Sprintf("the module does not start within the limits of memory: %v", err)}
	}
	return g.Close()
}

// Activate has every node that can be reached fetch and compile the module,
// then binds the type to it, and returns when all of them serve it. A node that
// cannot be reached catches up before it serves: a shard that it comes to lead
// knows the revision that its commands ran under.
func (s moduleService) Activate(ctx context.Context, entityType string, digest journal.Digest, limits *rpc.Limits) (uint64, error) {
	n := s.n
	if _, err := s.known(ctx, digest); err != nil {
		return 0, err
	}
	m, err := n.module(ctx, digest, "")
	if err != nil {
		return 0, err
	}
	if _, _, ok := m.Manifest().Type(entityType); !ok {
		return 0, &rpc.InvalidModuleError{Reason: fmt.Sprintf("the module does not serve entity type %q; it serves those that hostd module describe lists", entityType)}
	}
	if limits != nil {
		if err := fits(ctx, m, meta.Limits(*limits)); err != nil {
			return 0, err
		}
	}
	if err := n.prepareEverywhere(ctx, digest); err != nil {
		return 0, err
	}
	order := meta.Bind(entityType, meta.Digest(digest), time.Now().UnixNano())
	if limits != nil {
		order = meta.BindLimited(entityType, meta.Digest(digest), time.Now().UnixNano(), meta.Limits(*limits))
	}
	res, err := n.metadata.Do(ctx, order)
	if errors.Is(err, meta.ErrShardKey) {
		return 0, &rpc.RefusedError{Reason: err.Error()}
	}
	if err != nil {
		return 0, err
	}
	// What was bound is applied where it was decided, and maybe not here yet.
	if err := n.metadata.CatchUp(ctx); err != nil {
		return 0, err
	}
	if err := n.bindings.refresh(ctx); err != nil {
		return 0, err
	}
	return res.Revision, n.servedEverywhere(ctx, res.Revision)
}
