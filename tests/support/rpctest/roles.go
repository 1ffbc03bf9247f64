package rpctest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hostd/hostd/host/entityapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// Names implements moduleapi.Types.
func (w *World) Names() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.types))
}

// Lookup implements moduleapi.Types.
func (w *World) Lookup(_ context.Context, entityType string) (modules.Type, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.typesErr != nil {
		return modules.Type{}, w.typesErr
	}
	t, ok := w.types[entityType]
	if !ok {
		w.looks++
		return modules.Type{}, request.ErrUnknownType
	}
	return t, nil
}

// Looks returns the number of lookups of types that do not exist.
func (w *World) Looks() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks
}

// Read implements subscription.Histories.
func (w *World) Read(ctx context.Context, id sharding.EntityID, from journal.Sequence, fn func(*journal.Record) error) error {
	w.mu.Lock()
	var records []journal.Record
	if s := w.entities[id]; s != nil {
		records = slices.Clone(s.records)
	}
	w.mu.Unlock()
	for i := range records {
		if records[i].Last() < from {
			continue
		}
		if err := fn(&records[i]); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// Watch implements subscription.Histories.
func (w *World) Watch(id sharding.EntityID) (<-chan struct{}, func()) {
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watchers[id] == nil {
		w.watchers[id] = make(map[chan struct{}]struct{})
	}
	w.watchers[id][c] = struct{}{}
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.watchers[id], c)
	}
}

// Watchers returns the number of streams that follow an entity.
func (w *World) Watchers(id sharding.EntityID) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.watchers[id])
}

type roleEntities struct{ *World }

func (w roleEntities) Shards() uint32 { return 4 }

func (w roleEntities) ShardOfPrefix(string, string) (sharding.ShardID, bool) { return 0, false }

func (w roleEntities) ShardOf(id sharding.EntityID) sharding.ShardID { return sharding.ShardOf(id, 4) }

func (w roleEntities) Get(_ context.Context, id sharding.EntityID) (entityapi.EntityInfo, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	info := entityapi.EntityInfo{Status: "absent", Shard: sharding.ShardOf(id, 4), Node: "n1", Module: ModuleDigest}
	if s := w.entities[id]; s != nil {
		info.Status, info.Sequence, info.Resident = "active", s.sequence, true
	}
	return info, nil
}

func (w roleEntities) List(_ context.Context, shard sharding.ShardID, q entityapi.EntityQuery) (entityapi.EntityPage, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []entityapi.EntitySummary
	for id, s := range w.entities {
		if id.Type == q.Type && id.ID > q.After && strings.HasPrefix(id.ID, q.IDPrefix) && sharding.ShardOf(id, 4) == shard {
			out = append(out, entityapi.EntitySummary{ID: id.ID, Sequence: s.sequence, Status: "active"})
		}
	}
	slices.SortFunc(out, func(a, b entityapi.EntitySummary) int { return strings.Compare(a.ID, b.ID) })
	if len(out) > q.Limit {
		return entityapi.EntityPage{Entities: out[:q.Limit], Next: out[q.Limit-1].ID}, nil
	}
	return entityapi.EntityPage{Entities: out}, nil
}

// TypesOf lists the types of a module; nil if no module has the digest.
func (w *World) TypesOf(digest string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.modules {
		if m.Digest.String() == digest {
			return m.EntityTypes
		}
	}
	return nil
}

type roleModules struct{ *World }

// Upload accepts any bytes that begin with WebAssembly's magic number. The
// words after it name the types of the module, in addition to "uploaded".
func (w roleModules) Upload(ctx context.Context, u modules.Upload) (modules.Module, error) {
	wasm := u.Wasm
	if !strings.HasPrefix(string(wasm), "\x00asm") {
		return modules.Module{}, &request.InvalidModuleError{Reason: "the module does not begin with the magic number"}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m := modules.Module{
		Digest: sha256.Sum256(wasm), Name: "test", Version: "1",
		SizeBytes: int64(len(wasm)), UploadedAt: time.Unix(1e9+int64(len(w.modules)), 0).UTC(), EntityTypes: append([]string{"uploaded"}, strings.Fields(string(wasm))[1:]...),
		Manifest: json.RawMessage(`{"abi":1,"name":"test"}`),
	}
	for i := range w.modules {
		have := &w.modules[i]
		if have.Digest != m.Digest {
			continue
		}
		if len(u.Signature) > 0 && len(have.signature) > 0 && u.Resign != nil {
			w.mu.Unlock()
			err := u.Resign(ctx, m.EntityTypes)
			w.mu.Lock()
			if err != nil {
				return modules.Module{}, err
			}
			have = &w.modules[i]
			have.signature = u.Signature
		}
		return have.Module, nil
	}
	w.modules = append(w.modules, stored{m, wasm, u.Signature})
	return m, nil
}

func (w roleModules) List(context.Context) ([]modules.Module, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []modules.Module
	for _, m := range slices.Backward(w.modules) {
		out = append(out, m.Module)
	}
	return out, nil
}

func (w roleModules) find(digest journal.Digest) (stored, error) {
	for _, m := range w.modules {
		if m.Digest == digest {
			return m, nil
		}
	}
	return stored{}, request.ErrUnknownModule
}

func (w roleModules) Get(_ context.Context, digest journal.Digest) (modules.Module, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.find(digest)
	m.Owners = maps.Clone(w.owners)
	return m.Module, err
}

func (w roleModules) Download(_ context.Context, digest journal.Digest, to io.Writer) error {
	w.mu.Lock()
	m, err := w.find(digest)
	w.mu.Unlock()
	for piece := range slices.Chunk(m.wasm, 64<<10) {
		if err == nil {
			_, err = to.Write(piece)
		}
	}
	return err
}

func (w roleModules) Activate(ctx context.Context, a modules.Activation) (now modules.Activated, err error) {
	if a.Approver != nil {
		was, _ := w.Owner(ctx, a.EntityType)
		m, _ := w.Get(ctx, a.Digest)
		owner, err := a.Approver.Approve(ctx, modules.Rebinding{EntityType: a.EntityType, Owner: was, Types: m.EntityTypes})
		if err != nil {
			return now, err
		}
		defer func() {
			if err == nil {
				w.setOwner(a.EntityType, owner)
			}
		}()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m, err := w.find(a.Digest)
	if err != nil {
		return now, err
	}
	if !slices.Contains(m.EntityTypes, a.EntityType) {
		return now, &request.InvalidModuleError{Reason: "the module does not have the entity type"}
	}
	w.types[a.EntityType] = modules.Type{Encoding: request.JSON, Module: a.Digest}
	return modules.Activated{Revision: 7}, nil
}

func (w roleModules) Owner(_ context.Context, entityType string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.types[entityType]; !known {
		return "", request.ErrUnknownType
	}
	return w.owners[entityType], nil
}

func (w roleModules) Changes(ctx context.Context, entityType string) ([]modules.ActivationChange, error) {
	_, err := w.Owner(ctx, entityType)
	return []modules.ActivationChange{{Revision: 7, Kind: "activate"}}, err
}

// Remove removes a module unless it serves a type.
func (w roleModules) Remove(ctx context.Context, digest journal.Digest, allow func(context.Context, []string) error) error {
	w.mu.Lock()
	m, err := w.find(digest)
	serves := false
	for _, t := range w.types {
		serves = serves || t.Module == digest
	}
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if err := allow(ctx, m.EntityTypes); err != nil {
		return err
	}
	if serves {
		return &status.RefusedError{Reason: "the module serves an entity type"}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.modules = slices.DeleteFunc(w.modules, func(m stored) bool { return m.Digest == digest })
	return nil
}

// Quotas counts all modules against a quota of one hundred, for every caller.
func (w roleModules) Quotas(by string) modules.Quotas {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := modules.Quotas{Limit: modules.Amounts{Modules: 100, Bytes: 1 << 20, OfOne: 10}, Retention: time.Hour}
	for _, m := range w.modules {
		q.Used.Modules++
		q.Used.Bytes += m.SizeBytes
	}
	return q
}

func (w roleModules) SetOwner(ctx context.Context, entityType, owner string, allow func(context.Context, string) error) error {
	was, err := w.Owner(ctx, entityType)
	if err != nil {
		return err
	}
	if err := allow(ctx, was); err != nil {
		return err
	}
	w.setOwner(entityType, owner)
	return nil
}

// typesOf lists the types of the module that serves a type.
func (w roleModules) typesOf(entityType string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, _ := w.find(w.types[entityType].Module)
	return m.EntityTypes
}

func (w roleModules) setOwner(entityType, owner string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owners[entityType] = owner
}

// Verification returns no stored result of a compatibility check.
func (w roleModules) Verification(context.Context, string, journal.Digest) (modules.StoredVerification, error) {
	return modules.StoredVerification{}, nil
}

// KeepVerified discards the result.
func (w roleModules) KeepVerified(context.Context, string, modules.VerifyResult) error { return nil }

func (w roleModules) Rollback(ctx context.Context, back modules.TakeBack) (modules.Rollback, error) {
	entityType, revision := back.EntityType, back.Revision
	if back.Approver != nil {
		was, _ := w.Owner(ctx, entityType)
		if _, err := back.Approver.Approve(ctx, modules.Rebinding{EntityType: entityType, Owner: was, Types: w.typesOf(entityType)}); err != nil {
			return modules.Rollback{}, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t, known := w.types[entityType]
	switch {
	case !known:
		return modules.Rollback{}, request.ErrUnknownType
	case revision != 0 && revision != 7:
		return modules.Rollback{}, &status.RefusedError{Reason: "another revision serves"}
	}
	return modules.Rollback{Digest: t.Module, Revision: 8, Types: []string{entityType}}, nil
}
