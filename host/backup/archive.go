package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/archive"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// bindTime bounds the activation of a type, during which every node compiles
// its module.
const bindTime = 5 * time.Minute

// importing is the state of an import of an archive into the cluster.
type importing struct {
	Options
	parts *allParts
	ctx   context.Context
	// withBindings also imports roles that allow the verb security.
	withBindings bool
	omitted      []string // settings, roles and role bindings that were not imported
	about        description
	rules        map[string]sharding.KeyRule
	modules      int
	claimed      bool
	to           *chunks
}

func (in *importing) close() {
	if in.to != nil {
		in.to.close()
	}
}

// Cluster implements archive.Sink.
func (in *importing) Cluster(id archive.ID, text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in.about); err != nil {
		return fmt.Errorf("%w: the cluster's description: %w", archive.ErrUnsupported, err)
	}
	in.rules = make(map[string]sharding.KeyRule, len(in.about.Bindings))
	for _, b := range in.about.Bindings {
		in.rules[b.EntityType] = b.ShardKey
	}
	if err := in.Metadata.CatchUp(in.ctx); err != nil {
		return err
	}
	if err := errors.Join(in.checkLevel(), in.checkRoles()); err != nil {
		return err
	}
	to, begun, err := in.parts.begin(in.ctx, id, func(e sharding.EntityID) sharding.ShardID {
		return in.rules[e.Type].ShardOf(e, in.Shards)
	})
	if err != nil {
		return err
	}
	in.to = to
	if !begun && len(in.Metadata.View().Activations()) > 0 {
		return fmt.Errorf("%w: the cluster serves entity types", errNotEmpty)
	}
	return nil
}

// checkLevel rejects an archive with a higher cluster version than the
// cluster's, before anything is imported. The cluster may have nodes of an
// earlier release, which could not read the archive's records and messages or
// would misread them.
func (in *importing) checkLevel() error {
	if level := in.Metadata.ClusterVersion(); in.about.Level > level {
		return &status.RefusedError{Reason: in.about.Level.NeededBy("the backup needs", level)}
	}
	return nil
}

// Module implements archive.Sink.
func (in *importing) Module(digest journal.Digest, wasm []byte) error {
	if in.to.opened {
		in.modules++
		return nil
	}
	signature := in.signatureOf(digest)
	if have, known := in.Metadata.View().Module(meta.Digest(digest)); known && (len(signature) == 0 || len(have.Signature) > 0) {
		in.modules++
		return nil
	}
	ctx, cancel := context.WithTimeout(in.ctx, bindTime)
	defer cancel()
	got, err := in.Modules.Upload(ctx, modules.Upload{Wasm: wasm, Signature: signature})
	if err != nil {
		return fmt.Errorf("upload module %s: %w", digest, err)
	}
	if got.Digest != digest {
		return fmt.Errorf("%w: a module has a different digest than announced", archive.ErrDamaged)
	}
	in.modules++
	return nil
}

// signatureOf returns the signature of a module in the archive. The nodes of
// this cluster decide whether they accept it.
func (in *importing) signatureOf(digest journal.Digest) []byte {
	for i := range in.about.Modules {
		if in.about.Modules[i].Digest == meta.Digest(digest) {
			return in.about.Modules[i].Signature
		}
	}
	return nil
}

// Begin implements archive.Sink.
func (in *importing) Begin(archive.Shard) error {
	if in.modules < len(in.about.Modules) {
		return fmt.Errorf("%w: modules are missing", archive.ErrDamaged)
	}
	if in.claimed {
		return nil
	}
	in.claimed = true
	return in.to.claim()
}

// Part implements archive.Sink.
func (in *importing) Part(kind journal.PartKind, data []byte) error { return in.to.part(kind, data) }

// End implements archive.Sink.
func (in *importing) End(archive.Shard) error { return nil }

func (in *importing) finish() error {
	if err := in.to.flush(); err != nil {
		return err
	}
	if in.to.opened { // shards are opened last, so everything below was done already
		return in.to.finish()
	}
	if err := in.bringSettings(); err != nil {
		return err
	}
	if err := in.bringRoles(); err != nil {
		return err
	}
	for _, b := range in.about.Bindings {
		if err := in.bind(b); err != nil {
			return fmt.Errorf("activate the module of entity type %s: %w", b.EntityType, err)
		}
	}
	if err := in.bringRollouts(); err != nil {
		return err
	}
	if err := in.bringOwners(); err != nil {
		return err
	}
	// The commands were applied by the leader of the metadata, but maybe not
	// yet on this node.
	if err := in.Metadata.CatchUp(in.ctx); err != nil {
		return err
	}
	return in.to.finish()
}

// bind activates the modules that served a type in the archive, one after
// another. It continues where an interrupted attempt stopped.
func (in *importing) bind(b meta.Activation) error {
	ctx, cancel := context.WithTimeout(in.ctx, bindTime)
	defer cancel()
	have, _ := in.Metadata.View().Activation(b.EntityType)
	if slices.Equal(servedModules(have), servedModules(b)) && have.Limits == b.Limits {
		return nil
	}
	revision, level := have.Revision, in.Metadata.ClusterVersion()
	for i := len(b.History) - len(unbound(have, b)); i < len(b.History); i++ {
		h := b.History[i]
		command := meta.Bind(b.EntityType, h.Digest, h.At)
		if proved := b.RestoredHistory(i); level >= sharding.VersionSnapshotProofs && len(proved.Truncated) > 0 {
			command = meta.BindRestored(b.EntityType, h.Digest, h.At, revision, nil, proved)
		}
		res, err := in.Metadata.Do(ctx, command)
		if err != nil {
			return err
		}
		revision = res.Revision
	}
	limits := modules.Limits(b.Limits)
	_, err := in.Modules.Activate(ctx, modules.Activation{EntityType: b.EntityType, Digest: journal.Digest(b.Digest), Limits: &limits, Restored: b.ToRestored()})
	return err
}

// bringRollouts restores rollouts, so that entities that a second module
// served before the export are served by that module here too. The first
// module may not be able to read what the second module has written.
func (in *importing) bringRollouts() error {
	for _, b := range in.about.Bindings {
		if b.Rollout == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(in.ctx, bindTime)
		now, err := in.Rollouts.Restore(ctx, b.EntityType, *b.Rollout, b.RestoredRollout())
		cancel()
		if err != nil {
			return fmt.Errorf("start the rollout of %s: %w", b.EntityType, err)
		}
		if now == nil {
			continue
		}
		in.Logger.Info("restored a rollout of the exported cluster",
			"entity_type", b.EntityType, "module", now.Digest.String(), "state", string(now.State), "stay", len(now.Stay))
	}
	return nil
}

// pausedRollouts returns the types that a second module serves in part, both in
// this cluster and in the archive.
func (in *importing) pausedRollouts() (types []string) {
	for _, b := range in.about.Bindings {
		if have, _ := in.Metadata.View().Activation(b.EntityType); b.Rollout != nil && have.Rollout != nil {
			types = append(types, b.EntityType)
		}
	}
	return types
}

// unbound returns the activations in the history of want that are missing in
// the history of have, oldest first. It returns nil if the history of have is
// not a prefix of the history of want: then somebody else has activated
// modules here, and their history stays.
func unbound(have, want meta.Activation) []meta.Bound {
	done, all := servedModules(have), servedModules(want)
	if len(done) > len(want.History) || !slices.Equal(done, all[:len(done)]) {
		return nil
	}
	return want.History[len(done):]
}

// servedModules returns the modules that have served a type, with the current one
// last. It returns nil if the type has no module.
func servedModules(b meta.Activation) []meta.Digest {
	if b.Digest == (meta.Digest{}) {
		return nil
	}
	all := make([]meta.Digest, 0, len(b.History)+1)
	for i := range b.History {
		all = append(all, b.History[i].Digest)
	}
	return append(all, b.Digest)
}
