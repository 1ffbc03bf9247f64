package meta

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
)

func (t *transition) putModule(m Module) error {
	if err := t.checkSignature(m); err != nil {
		return err
	}
	if before, known := t.view.modules[m.Digest]; known {
		unsigned := len(m.Signature) == 0 || bytes.Equal(m.Signature, before.Signature)
		if unsigned && before.UnusedSince == 0 {
			return nil
		}
		if !unsigned {
			before.Signature = m.Signature
		}
		before.UnusedSince = 0 // an upload means that the module is about to be used
		t.keepModule(before)
		return nil
	}
	if m.Size <= 0 {
		return fmt.Errorf("%w: invalid module size %d", ErrInvalid, m.Size)
	}
	if err := t.view.CheckModuleQuota(m); err != nil {
		return err
	}
	if err := checkText("module name", m.Name, maxNameBytes); err != nil {
		return err
	}
	if err := checkText("module version", m.Version, maxNameBytes); err != nil {
		return err
	}
	if len(m.EntityTypes) == 0 || len(m.EntityTypes) > MaxTypesPerModule {
		return fmt.Errorf("%w: the module has %d entity types, 1 to %d are allowed", ErrInvalid, len(m.EntityTypes), MaxTypesPerModule)
	}
	for i, typ := range m.EntityTypes {
		if err := sharding.ValidateEntityType(typ); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if slices.Contains(m.EntityTypes[:i], typ) {
			return fmt.Errorf("%w: the module names entity type %s twice", ErrInvalid, typ)
		}
	}
	if err := m.checkShardKeys(); err != nil {
		return err
	}
	t.keepModule(m)
	return nil
}

func (t *transition) keepModule(m Module) {
	put(&t.view.modules, m.Digest, m)
	t.store(prefixModule+m.Digest.String(), m)
}

// checkSignature limits the size of a signature. It does not verify the
// signature: the result would depend on the keys that a node trusts, and
// replicas must not disagree.
func (t *transition) checkSignature(m Module) error {
	level := t.view.ClusterVersion()
	switch {
	case len(m.Signature) == 0:
		return nil
	case level < sharding.VersionSignatures:
		return fmt.Errorf("%w: %s", ErrClusterVersion, sharding.VersionSignatures.NeededBy("module signatures need", level))
	case len(m.Signature) > MaxSignatureBytes:
		return fmt.Errorf("%w: the signature has %d bytes, at most %d are allowed", ErrInvalid, len(m.Signature), MaxSignatureBytes)
	}
	return nil
}

// checkShardKeys checks the rules and replaces them with their canonical form.
func (m *Module) checkShardKeys() error {
	if len(m.ShardKeys) == 0 {
		m.ShardKeys = nil
		return nil
	}
	rules := make(map[string]sharding.KeyRule, len(m.ShardKeys))
	for _, typ := range m.EntityTypes {
		rule, declared := m.ShardKeys[typ]
		if !declared {
			continue
		}
		if err := rule.Validate(); err != nil {
			return fmt.Errorf("%w: entity type %s: %w", ErrInvalid, typ, err)
		}
		rules[typ] = rule.Normalize(typ)
	}
	if len(rules) != len(m.ShardKeys) {
		return fmt.Errorf("%w: a shard key names an entity type that the module does not serve", ErrInvalid)
	}
	m.ShardKeys = rules
	return nil
}

func (t *transition) bind(c command) (Result, error) {
	entityType, digest, over, limits, forcedBy := c.EntityType, *c.Digest, c.Over, c.Limits, ""
	if over != nil && t.view.ClusterVersion() < sharding.VersionBindOver {
		return Result{}, fmt.Errorf("%w: at cluster version %d an activation cannot name a revision", ErrClusterVersion, t.view.ClusterVersion())
	}
	if over != nil {
		forcedBy = over.ForcedBy
	}
	if err := checkText("forcedBy", forcedBy, MaxForcedByBytes); err != nil {
		return Result{}, err
	}
	if err := t.checkBy(c.By); err != nil {
		return Result{}, err
	}
	m, known := t.view.modules[digest]
	if !known {
		return Result{}, fmt.Errorf("%w: %s", ErrUnknownModule, digest)
	}
	place := slices.Index(m.EntityTypes, entityType)
	if place < 0 {
		return Result{}, fmt.Errorf("%w: the module does not serve %.64q", ErrUnknownType, entityType)
	}
	b, bound := t.view.activations[entityType]
	kind, forced := ChangeActivate, forcedBy != ""
	rule := m.ShardKeys[entityType]
	if bound && rule != b.ShardKey {
		return Result{}, fmt.Errorf("%w: entities of type %s are sharded by %s, but the module shards them by %s", ErrShardKey, entityType, b.ShardKey, rule)
	}
	b.ShardKey = rule
	before := b.Owner
	b.EntityType = entityType
	if err := t.setOwner(&b, c.Owner); err != nil {
		return Result{}, err
	}
	snapshots, truncated := t.view.snapshotsFor(b, digest), t.view.truncatedFor(b, digest)
	assumed := b.Digest == digest && b.Assumed
	if over != nil && len(over.Truncated) > 0 {
		if level := t.view.ClusterVersion(); level < sharding.VersionSnapshotProofs {
			return Result{}, fmt.Errorf("%w: at cluster version %d an activation cannot name snapshot modules", ErrClusterVersion, level)
		}
		if len(over.Truncated) > MaxTruncatedModules {
			return Result{}, fmt.Errorf("%w: %d snapshot modules, at most %d are allowed", ErrInvalid, len(over.Truncated), MaxTruncatedModules)
		}
		truncated, assumed = union(truncated, over.Truncated), assumed || over.Assumed
	}
	proved := t.view.ClusterVersion() >= sharding.VersionSnapshotProofs && (!bound || b.Digest != digest || b.Proved)
	same := limits == nil || *limits == b.Limits
	if limits != nil {
		if err := checkLimits(*limits, t.view.ClusterVersion()); err != nil {
			return Result{}, err
		}
		b.Limits = *limits
	}
	switch {
	case bound && b.Digest == digest && same:
		if b.Owner != before {
			t.storeActivation(b)
		}
		return Result{Revision: b.Revision}, nil
	case bound && b.Digest != digest && b.Rollout.IsVerifying():
		return Result{}, fmt.Errorf("%w: %s", ErrConflict, b.verifyingMessage())
	case bound && b.Digest != digest && b.Rollout.IsActive():
		return Result{}, fmt.Errorf("%w: a rollout of %s is in progress: promote or abort it first", ErrConflict, entityType)
	case over != nil && over.Revision != b.Revision:
		return Result{}, fmt.Errorf("%w: %s is served under revision %d, not %d", ErrConflict, entityType, b.Revision, over.Revision)
	case bound && b.Digest == digest:
		kind, forcedBy = ChangeLimits, cmp.Or(forcedBy, b.ForcedBy)
	case bound:
		b.Rollout = nil // entities that stayed with the rolled-out module move to the newly bound module
		b.History = append(slices.Clone(b.History), b.Bound)
		if over := len(b.History) - MaxActivationHistory; over > 0 {
			b.History = b.History[over:]
		}
	case len(t.view.activations) >= MaxActivations:
		return Result{}, fmt.Errorf("%w: the cluster already has %d entity types", ErrInvalid, MaxActivations)
	}
	return t.rebind(b, Bound{Digest: digest, TypeIndex: place, At: c.At, ForcedBy: forcedBy, Snapshots: snapshots, Truncated: truncated, Proved: proved, Assumed: assumed}, ActivationChange{Kind: kind, By: c.By, Forced: forced}), nil
}

// rebind makes `to` the module that serves b's entity type, under the next
// revision. why describes the change for the change log.
func (t *transition) rebind(b Activation, to Bound, why ActivationChange) Result {
	t.view.counters.Revision++
	if t.view.ClusterVersion() >= sharding.VersionSnapshotProofs {
		to = b.withTruncated(to)
	}
	to.Revision = t.view.counters.Revision
	if why.Kind != "" && t.view.ClusterVersion() >= sharding.VersionChanges {
		before := t.view.activations[b.EntityType]
		b.Changes = before.withChange(to, why)
	}
	b.Bound, b.PausedSince = to, 0
	if m := t.view.modules[to.Digest]; m.UnusedSince != 0 {
		m.UnusedSince = 0
		t.keepModule(m)
	}
	put(&t.view.activations, b.EntityType, b)
	t.store(prefixActivation+b.EntityType, b)
	t.storeCounters()
	return Result{Revision: to.Revision}
}
