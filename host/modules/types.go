package modules

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/sharding"
)

// Types are the entity types that this node can serve: the activations in the
// metadata, each with its compiled module. Lookups never block.
type Types struct {
	metadata *cluster.Metadata
	keys     *ShardKeys
	settings *Settings
	modules  *Distribution
	limits   abi.Limits // limits of this node
	lines    *GuestLines
	logger   *slog.Logger
	faults   faultCounts
	profiles profiles

	executors        executors // notified when reached rises; may be nil
	types            atomic.Pointer[map[string]*Served]
	alwaysOn         atomic.Pointer[[]string]         // always-on types among types
	revision         atomic.Uint64                    // all activations up to this revision are served
	reached          atomic.Uint64                    // up to this revision, no older activation of a type is served instead of a newer activation
	failing          atomic.Bool                      // a module could not be loaded, and the load is retried
	signatureResults atomic.Pointer[signatureResults] // last results of the signature checks
	turn             chan struct{}                    // semaphore: only one Refresh runs at a time
	mu               sync.Mutex                       // guards changed
	changed          chan struct{}                    // closed and replaced after a refresh
}

func newTypes(m *cluster.Metadata, keys *ShardKeys, settings *Settings, modules *Distribution, limits abi.Limits, lines *GuestLines, logger *slog.Logger) *Types {
	t := &Types{
		metadata: m, keys: keys, settings: settings, modules: modules, limits: limits, lines: lines, logger: logger,
		turn: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	t.types.Store(&map[string]*Served{})
	t.alwaysOn.Store(&[]string{})
	t.signatureResults.Store(&signatureResults{})
	return t
}

// Lookup implements entity.Types.
func (t *Types) Lookup(entityType string) *entity.Type {
	if t := t.ServedType(entityType); t != nil {
		return &t.Type
	}
	return nil
}

// AlwaysOn returns the always-on types, whose entities stay in memory.
func (t *Types) AlwaysOn() []string { return *t.alwaysOn.Load() }

// Singletons returns the entities of singleton types that belong to a shard.
func (t *Types) Singletons(shard sharding.ShardID) (ids []sharding.EntityID) {
	for _, name := range t.AlwaysOn() {
		id := sharding.EntityID{Type: name, ID: manifest.SingletonID}
		if at, known := t.keys.Locate(id); known && at == shard {
			if t := t.ServedType(name); t != nil && t.Singleton {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// ServedType returns a type that this node serves, or nil.
func (t *Types) ServedType(entityType string) *Served {
	return (*t.types.Load())[entityType]
}

// For returns how this node serves an entity, or nil if it does not.
func (t *Types) For(id sharding.EntityID) *Served {
	s := t.ServedType(id.Type)
	if s == nil || s.Canary == nil || !s.Canary.Part.Serves(id) {
		return s
	}
	return s.newer
}

// Refresh updates the lookup table to the current metadata, and fetches and
// compiles new modules. Concurrent calls wait for each other until ctx ends.
// If the module of a type cannot be loaded, the type is not served, not even
// by its previous module, and the other types are not affected; the first
// such error is returned at the end. A type whose module lacks a required
// signature is not served either. That is no error, because another attempt
// would not help.
func (t *Types) Refresh(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return fmt.Errorf("wait to load modules: %w", ctx.Err())
	}
	old := *t.types.Load()
	next := make(map[string]*Served, len(old))
	var first error
	view := t.metadata.View()
	if view.Revision() < t.revision.Load() {
		return nil // the replica of the metadata was replaced and has not caught up yet
	}
	t.keys.learn(view) // before a type is served, the shards of its entities must be known
	unsigned := t.checkSignatures(view)
	for _, binding := range view.Activations() {
		if unsigned[binding.EntityType].Refused {
			continue
		}
		served, err := t.serve(ctx, view, binding, old[binding.EntityType])
		if err != nil {
			t.logger.Error("cannot load an active module", "entity_type", binding.EntityType, "digest", binding.Digest.String(), "error", err)
			if first == nil {
				first = fmt.Errorf("load the module of entity type %s: %w", binding.EntityType, err)
			}
		}
		if served != nil {
			next[binding.EntityType] = served
		}
	}
	t.types.Store(&next)
	autostart := []string{}
	for name, served := range next {
		if served.AlwaysOn {
			autostart = append(autostart, name)
		}
	}
	t.alwaysOn.Store(&autostart)
	if view.Revision() > t.reached.Load() {
		t.reached.Store(view.Revision())
		if t.executors != nil {
			t.executors.ActivationsChanged()
		}
	}
	if first == nil && view.Revision() > t.revision.Load() {
		t.revision.Store(view.Revision())
		t.announce()
	}
	return first
}

// ReachedRevision returns the revision up to which no older activation is
// served instead of a newer activation.
func (t *Types) ReachedRevision() uint64 { return t.reached.Load() }

// Failing reports whether a module could not be loaded and is tried again.
func (t *Types) Failing() bool { return t.failing.Load() }

// Faults returns the number of failed guest calls with a kind of fault.
func (t *Types) Faults(kind guest.FaultKind) uint64 { return t.faults[kind].Load() }

func (t *Types) announce() {
	t.mu.Lock()
	defer t.mu.Unlock()
	close(t.changed)
	t.changed = make(chan struct{})
}

// Await waits until every activation up to the revision is served here.
func (t *Types) Await(ctx context.Context, revision uint64) error {
	for {
		t.mu.Lock()
		changed := t.changed
		t.mu.Unlock()
		if t.revision.Load() >= revision {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("serve activation revision %d: %w", revision, ctx.Err())
		}
	}
}

// run refreshes after each change of the metadata until ctx ends.
func (t *Types) run(ctx context.Context) {
	var seen uint64
	var again <-chan time.Time // set after a failed load, because a missing module may become available
	pause := minLoadPause
	for {
		changed, trust := t.metadata.Changed(), t.modules.trust.Changed()
		if rev := t.metadata.View().Revision(); rev != seen || again != nil || t.needsSignatureCheck(t.metadata.View()) {
			if err := t.Refresh(ctx); err == nil {
				seen, again, pause = rev, nil, minLoadPause
			} else {
				again = time.After(pause)
				pause = min(2*pause, maxLoadPause)
			}
			t.failing.Store(again != nil)
		}
		select {
		case <-changed:
		case <-trust:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// Pauses between attempts to load a module.
const (
	minLoadPause = time.Second
	maxLoadPause = 30 * time.Second
)
