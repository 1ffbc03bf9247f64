package host

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// bindings keeps the entity types that this node can serve: the metadata's
// bindings, each with its module compiled. Look-ups never block.
type bindings struct {
	metadata *cluster.Metadata
	keys     *shardKeys
	compile  func(ctx context.Context, b meta.Binding) (*servedType, error)
	logger   *slog.Logger

	moved    func() // told when reached has risen
	types    atomic.Pointer[map[string]*servedType]
	keeping  atomic.Pointer[[]string] // the types of these that remember their entities
	revision atomic.Uint64            // every binding up to it is served
	reached  atomic.Uint64            // no binding before it is served in the place of a later one
	failing  atomic.Bool              // a module could not be loaded, and is tried again
	turn     chan struct{}            // held by the one refresh at a time
	mu       sync.Mutex               // guards changed
	changed  chan struct{}            // closed and made anew after a refresh
}

func newBindings(m *cluster.Metadata, keys *shardKeys, logger *slog.Logger, compile func(context.Context, meta.Binding) (*servedType, error)) *bindings {
	b := &bindings{metadata: m, keys: keys, compile: compile, logger: logger, moved: func() {}, turn: make(chan struct{}, 1), changed: make(chan struct{})}
	b.types.Store(&map[string]*servedType{})
	b.keeping.Store(&[]string{})
	return b
}

// Lookup implements entity.Types.
func (b *bindings) Lookup(entityType string) *entity.Type {
	if t := b.served(entityType); t != nil {
		return &t.Type
	}
	return nil
}

// remembered names the types whose entities stay in memory.
func (b *bindings) remembered() []string { return *b.keeping.Load() }

// singletons returns the entities of singleton types that belong to a shard.
func (b *bindings) singletons(shard sharding.ShardID, locate func(sharding.EntityID) (sharding.ShardID, bool)) (ids []sharding.EntityID) {
	for _, name := range b.remembered() {
		id := sharding.EntityID{Type: name, ID: manifest.SingletonID}
		if at, known := locate(id); known && at == shard {
			if t := b.served(name); t != nil && t.Singleton {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

func (b *bindings) served(entityType string) *servedType {
	return (*b.types.Load())[entityType]
}

// refresh makes the look-up table equal to the metadata, fetching and compiling
// what is new; others wait for their turn meanwhile, as long as ctx lasts. A
// type whose module cannot be had is not served, not by its former module
// either, and holds up no other; the first such fault is returned after
// everything else is done.
func (b *bindings) refresh(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return fmt.Errorf("wait to load modules: %w", ctx.Err())
	}
	old := *b.types.Load()
	next := make(map[string]*servedType, len(old))
	var first error
	view := b.metadata.View()
	if view.Revision() < b.revision.Load() {
		return nil // the metadata replica was renewed and is not there yet
	}
	b.keys.learn(view) // before a type is served, its entities have their shards
	for _, binding := range view.Bindings() {
		t := old[binding.EntityType]
		if t == nil || t.Digest != journal.Digest(binding.Digest) || t.Revision != binding.Revision {
			made, err := b.compile(ctx, binding)
			if err != nil {
				b.logger.Error("an active module cannot be loaded", "entity_type", binding.EntityType, "digest", binding.Digest.String(), "error", err)
				if first == nil {
					first = fmt.Errorf("load the module of entity type %s: %w", binding.EntityType, err)
				}
			}
			t = made
		}
		if t != nil {
			next[binding.EntityType] = t
		}
	}
	b.types.Store(&next)
	keeping := []string{}
	for name, t := range next {
		if t.Remember {
			keeping = append(keeping, name)
		}
	}
	b.keeping.Store(&keeping)
	if view.Revision() > b.reached.Load() {
		b.reached.Store(view.Revision())
		b.moved()
	}
	if first == nil && view.Revision() > b.revision.Load() {
		b.revision.Store(view.Revision())
		b.announce()
	}
	return first
}

func (b *bindings) announce() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.changed)
	b.changed = make(chan struct{})
}

// await waits until every binding up to the revision is served here.
func (b *bindings) await(ctx context.Context, revision uint64) error {
	for {
		b.mu.Lock()
		changed := b.changed
		b.mu.Unlock()
		if b.revision.Load() >= revision {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("serve binding revision %d: %w", revision, ctx.Err())
		}
	}
}

// run refreshes after each change of the metadata until ctx ends.
func (b *bindings) run(ctx context.Context) {
	var seen uint64
	var again <-chan time.Time // after a failure: what was missing may be there later
	pause := minLoadPause
	for {
		changed := b.metadata.Changed()
		if rev := b.metadata.View().Revision(); rev != seen || again != nil {
			if err := b.refresh(ctx); err == nil {
				seen, again, pause = rev, nil, minLoadPause
			} else {
				again = time.After(pause)
				pause = min(2*pause, maxLoadPause)
			}
			b.failing.Store(again != nil)
		}
		select {
		case <-changed:
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
