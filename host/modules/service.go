package modules

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Service stores the cluster's modules and activates them for entity types, on
// any node. It is safe for concurrent use.
type Service struct {
	engine   *guest.Engine
	files    *guest.Registry
	modules  *Distribution
	types    *Types
	metadata *cluster.Metadata
	disk     disk
	caughtUp *atomic.Bool // the metadata has caught up with the state that the cluster had when this node started
	refused  refusals
	shards   shardsChecker // set before Run
}

// Upload stores a module, unless it was rejected within the last hour.
func (s *Service) Upload(ctx context.Context, u Upload) (Module, error) {
	digest := journal.Digest(sha256.Sum256(u.Wasm))
	if reason, ok := s.refused.find(digest, time.Now()); ok {
		return Module{}, &request.InvalidModuleError{Reason: reason + "; the node rejected it before, and retries in an hour"}
	}
	m, err := s.keep(ctx, u)
	var invalid *request.InvalidModuleError
	if errors.As(err, &invalid) {
		s.refused.note(digest, invalid.Reason, time.Now())
	}
	return m, err
}

// keep stores a module that compiles and describes itself: first its bytes on a
// majority of the nodes, then its description in the metadata. It stores nothing
// before it has checked the quotas and the signature, because an upload that is
// rejected afterwards would leave its bytes on the disks of all nodes.
func (s *Service) keep(ctx context.Context, u Upload) (stored Module, err error) {
	if s.disk.ReadOnly() {
		return Module{}, request.ErrReadOnly
	}
	if err := s.checkUpload(u); err != nil {
		return Module{}, err
	}
	mod := meta.Module{Digest: meta.Digest(guest.DigestOf(u.Wasm)), Size: int64(len(u.Wasm))}
	if s.metadata.View().ClusterVersion() >= sharding.VersionRemoveModule {
		mod.Uploader = u.By
	}
	if err := s.checkQuotas(ctx, mod); err != nil {
		return Module{}, err
	}
	if _, err := s.engine.Admit(u.Wasm); err != nil {
		return Module{}, invalidModule(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.modules.releaseUnknown(mod.Digest))
		}
	}()
	m, err := s.files.ModuleOf(ctx, u.Wasm)
	if err == nil {
		err = s.checkManifest(m.Manifest())
	}
	if err != nil {
		return Module{}, invalidModule(err)
	}
	mod.Name, mod.Version, mod.UploadedAt = m.Manifest().Name, m.Manifest().Version, time.Now().UnixNano()
	for _, t := range m.Manifest().EntityTypes {
		mod.EntityTypes = append(mod.EntityTypes, t.Name)
		if t.ShardKey != (manifest.ShardKey{}) {
			if mod.ShardKeys == nil {
				mod.ShardKeys = make(map[string]sharding.KeyRule)
			}
			mod.ShardKeys[t.Name] = sharding.KeyRule(t.ShardKey)
		}
	}
	if mod.Signature = s.betterSignature(mod, u.Signature); u.Resign != nil {
		if before, known := s.metadata.View().Module(mod.Digest); known && len(before.Signature) > 0 && !bytes.Equal(before.Signature, mod.Signature) {
			if err := u.Resign(ctx, mod.EntityTypes); err != nil {
				return Module{}, err
			}
		}
	}
	if err := s.modules.checkSignature(mod); err != nil {
		return Module{}, err
	}
	if err := s.store(ctx, mod, u.Wasm); err != nil {
		return Module{}, err
	}
	return s.Get(ctx, journal.Digest(mod.Digest))
}

// checkQuotas returns a *quotaError if the quotas leave no room for a module.
// PutModule checks them again.
func (s *Service) checkQuotas(ctx context.Context, m meta.Module) error {
	if !errors.Is(s.metadata.View().CheckModuleQuota(m), meta.ErrQuota) {
		return nil
	}
	if err := s.metadata.CatchUp(ctx); err != nil {
		return err
	}
	if err := s.metadata.View().CheckModuleQuota(m); errors.Is(err, meta.ErrQuota) {
		return &quotaError{err.Error()}
	}
	return nil
}

// store stores a module's bytes on a majority of the nodes and then the module
// in the metadata. If the metadata rejects the module, its file is removed
// again, unless another upload has put it too.
func (s *Service) store(ctx context.Context, mod meta.Module, wasm []byte) error {
	at, err := s.modules.put(ctx, mod, wasm)
	if err != nil {
		return err
	}
	known := false
	if err = s.modules.spread(ctx, journal.Digest(mod.Digest), wasm); err == nil {
		_, err = s.metadata.Do(ctx, meta.PutModule(mod))
		// After any other error the metadata may have the module.
		known = !errors.Is(err, meta.ErrInvalid) && !errors.Is(err, meta.ErrQuota) && !errors.Is(err, meta.ErrClusterVersion)
	}
	if err != nil && !known && !at.IsZero() {
		s.modules.remove(journal.Digest(mod.Digest), at.Add(time.Nanosecond))
	}
	switch {
	case errors.Is(err, meta.ErrInvalid):
		return &request.InvalidModuleError{Reason: err.Error()}
	case errors.Is(err, meta.ErrQuota):
		return &quotaError{err.Error()}
	}
	return err
}

// invalidModule distinguishes faults of the uploaded module from faults of the
// node.
func invalidModule(err error) error {
	var refused *guest.AdmissionError
	var fault *guest.Fault
	if errors.As(err, &refused) || errors.As(err, &fault) || errors.Is(err, manifest.ErrInvalid) {
		return &request.InvalidModuleError{Reason: err.Error()}
	}
	return err
}

// List returns the stored modules, newest first.
func (s *Service) List(context.Context) ([]Module, error) {
	modules := s.metadata.View().Modules()
	out := make([]Module, 0, len(modules))
	for i := len(modules) - 1; i >= 0; i-- {
		out = append(out, s.describe(modules[i]))
	}
	return out, nil
}

func (s *Service) describe(m meta.Module) Module {
	view := s.metadata.View()
	out := Module{
		Digest: journal.Digest(m.Digest), Name: m.Name, Version: m.Version, SizeBytes: m.Size,
		UploadedAt: time.Unix(0, m.UploadedAt), EntityTypes: m.EntityTypes, Owners: map[string]string{},
		Verified: map[string]VerifyResult{}, Parts: partsOf(view, m.Digest, m.EntityTypes),
	}
	if m.UnusedSince != 0 {
		out.UnusedSince = time.Unix(0, m.UnusedSince)
	}
	for _, t := range m.EntityTypes {
		if b, bound := view.Activation(t); bound {
			out.Owners[t] = b.Owner
		}
		if v, ok := view.VerificationResult(t, m.Digest); ok {
			out.Verified[t] = *resultOf(v)
		}
	}
	by, fault := trustedKey(s.modules.trust.Keys(), m)
	out.SignedBy, out.SignatureFault = by, string(fault)
	return out
}

// findModule returns a module of the metadata. It reports a module as unknown only
// after this node has caught up, because a module that was just stored may not
// be applied here yet.
func (s *Service) findModule(ctx context.Context, digest journal.Digest) (meta.Module, error) {
	m, ok := s.metadata.View().Module(meta.Digest(digest))
	if ok {
		return m, nil
	}
	if err := s.metadata.CatchUp(ctx); err != nil {
		return meta.Module{}, err
	}
	if m, ok = s.metadata.View().Module(meta.Digest(digest)); !ok {
		return meta.Module{}, request.ErrUnknownModule
	}
	return m, nil
}

// Get describes a module. It fails with request.ErrUnknownModule.
func (s *Service) Get(ctx context.Context, digest journal.Digest) (Module, error) {
	m, err := s.findModule(ctx, digest)
	if err != nil {
		return Module{}, err
	}
	out := s.describe(m)
	compiled, err := s.modules.Module(ctx, digest, "")
	if err != nil {
		return Module{}, err
	}
	if out.Manifest, err = json.Marshal(compiled.Manifest()); err != nil {
		return Module{}, fmt.Errorf("describe module %s: %w", digest, err)
	}
	return out, nil
}

// Download writes a module's bytes to w in pieces of at most 64 KiB. If the
// module is unknown, it fails with request.ErrUnknownModule before the first
// piece. After other errors w may have received a part of the bytes.
func (s *Service) Download(ctx context.Context, digest journal.Digest, w io.Writer) error {
	if _, err := s.findModule(ctx, digest); err != nil {
		return err
	}
	if err := s.modules.Fetch(ctx, digest, ""); err != nil {
		return err
	}
	return s.files.Copy(w, digest)
}

// startsWithin creates an instance under a type's memory limits, because a module that
// cannot start under them would never serve.
func startsWithin(ctx context.Context, m *guest.Module, l meta.Limits) error {
	if l.MemoryBytes == 0 && l.TypeMemoryBytes == 0 {
		return nil
	}
	g, err := m.InstantiateWith(ctx, memoryBounds(l))
	if err != nil {
		return &request.InvalidModuleError{Reason: fmt.Sprintf("the module does not start within the memory limits: %v", err)}
	}
	return g.Close()
}

// Activate activates the module for the type after every reachable node has
// compiled it, and returns when all these nodes serve it. An unreachable node
// catches up before it serves: a shard that it starts to lead knows the
// revision under which its commands ran. If the module needs a proof and the
// caller lets the cluster make it later, the activation is stored as a rollout
// instead.
func (s *Service) Activate(ctx context.Context, a Activation) (Activated, error) {
	if _, err := s.findModule(ctx, a.Digest); err != nil {
		return Activated{}, err
	}
	m, err := s.modules.ToRun(ctx, a.Digest, "")
	if err != nil {
		return Activated{}, err
	}
	if _, _, ok := m.Manifest().Type(a.EntityType); !ok {
		return Activated{}, &request.InvalidModuleError{Reason: fmt.Sprintf("the module does not serve entity type %q; 'hostd module describe' lists its types", a.EntityType)}
	}
	if err := s.checkClusterVersion(m.Manifest()); err != nil {
		return Activated{}, err
	}
	if a.Limits != nil {
		if err := s.metadata.View().CheckLimits(meta.Limits(*a.Limits)); err != nil {
			return Activated{}, &status.RefusedError{Reason: err.Error()}
		}
		if err := startsWithin(ctx, m, meta.Limits(*a.Limits)); err != nil {
			return Activated{}, err
		}
	}
	return s.replace(ctx, m, a)
}

// rebind lets every reachable node fetch and compile the module, executes the
// command that order returns, and returns when all these nodes serve the
// result.
func (s *Service) rebind(ctx context.Context, digest journal.Digest, order func(context.Context) ([]byte, error)) (uint64, error) {
	if err := s.modules.checkSignatureHere(ctx, digest); err != nil {
		return 0, err
	}
	if err := s.modules.prepareEverywhere(ctx, digest); err != nil {
		return 0, err
	}
	command, err := order(ctx)
	if err != nil {
		return 0, err
	}
	res, _, err := s.repeat(ctx, command) // if nothing changes, it returns the existing revision
	if err != nil {
		return 0, err
	}
	// The activation is applied on the metadata leader, and maybe not on this
	// node yet.
	if err := s.metadata.CatchUp(ctx); err != nil {
		return 0, err
	}
	if err := s.types.Refresh(ctx); err != nil {
		return 0, err
	}
	return res.Revision, s.modules.servedEverywhere(ctx, res.Revision)
}

// awaitServed returns when this node and every other reachable node serve the
// activations up to the revision. A node may have applied an activation and
// still serve the previous module, because it loads the new one only afterwards.
func (s *Service) awaitServed(ctx context.Context, revision uint64) error {
	if err := s.types.Await(ctx, revision); err != nil {
		return err
	}
	return s.modules.servedEverywhere(ctx, revision)
}

// Lookup returns the served type. It reports a type as unknown only after this
// node has applied all metadata that was committed before the call. It waits at
// most as long as two ReadIndex requests.
func (s *Service) Lookup(ctx context.Context, entityType string) (Type, error) {
	if t := s.types.ServedType(entityType); t != nil {
		return t.API, nil
	}
	if !s.caughtUp.Load() {
		return Type{}, request.ErrNotReady
	}
	if _, bound := s.metadata.View().Activation(entityType); bound {
		return Type{}, request.ErrModuleNotLoaded
	}
	if s.metadata.Confirm(ctx) != nil {
		return Type{}, request.ErrNotReady
	}
	if _, bound := s.metadata.View().Activation(entityType); bound {
		return Type{}, request.ErrModuleNotLoaded
	}
	return Type{}, request.ErrUnknownType
}

// Names returns the types that modules serve.
func (s *Service) Names() (names []string) {
	for _, b := range s.metadata.View().Activations() {
		names = append(names, b.EntityType)
	}
	return names
}
