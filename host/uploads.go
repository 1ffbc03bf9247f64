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
	"github.com/hostd/hostd/host/registry"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

type moduleService struct{ n *Node }

// Upload keeps a module that compiles and describes itself: its bytes in the
// registry first, then what it is in the metadata.
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

func (s moduleService) Get(ctx context.Context, digest journal.Digest) (rpc.Module, error) {
	m, ok := s.n.metadata.View().Module(meta.Digest(digest))
	if !ok {
		return rpc.Module{}, rpc.ErrUnknownModule
	}
	out := describe(m)
	compiled, err := s.n.modules.Module(ctx, digest)
	if err != nil {
		return rpc.Module{}, err
	}
	if out.Manifest, err = json.Marshal(compiled.Manifest()); err != nil {
		return rpc.Module{}, fmt.Errorf("describe module %s: %w", digest, err)
	}
	return out, nil
}

func (s moduleService) Download(_ context.Context, digest journal.Digest) ([]byte, error) {
	if _, ok := s.n.metadata.View().Module(meta.Digest(digest)); !ok {
		return nil, rpc.ErrUnknownModule
	}
	wasm, err := s.n.modules.Get(digest)
	if errors.Is(err, registry.ErrNotFound) {
		return nil, rpc.ErrUnknownModule
	}
	return wasm, err
}

// Activate loads the module, binds the type to it, and returns once lanes
// serve it.
func (s moduleService) Activate(ctx context.Context, entityType string, digest journal.Digest) (uint64, error) {
	n := s.n
	if _, ok := n.metadata.View().Module(meta.Digest(digest)); !ok {
		return 0, rpc.ErrUnknownModule
	}
	m, err := n.modules.Module(ctx, digest)
	if err != nil {
		return 0, err
	}
	t, _, ok := m.Manifest().Type(entityType)
	switch {
	case !ok:
		return 0, &rpc.InvalidModuleError{Reason: fmt.Sprintf("the module does not serve entity type %q; it serves those that hostd module describe lists", entityType)}
	case t.Kind == manifest.DurableState:
		return 0, &rpc.InvalidModuleError{Reason: fmt.Sprintf("entity type %q is of kind durable-state, which this release does not host; use event-sourced", entityType)}
	}
	res, err := n.metadata.Do(ctx, meta.Bind(entityType, meta.Digest(digest), time.Now().UnixNano()))
	if err != nil {
		return 0, err
	}
	return res.Revision, n.bindings.refresh(ctx)
}
