package host

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/host/entity"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// bindings keeps the entity types that this node can serve: the metadata's
// bindings, each with its module compiled. Look-ups never block.
type bindings struct {
	metadata *cluster.Metadata
	compile  func(ctx context.Context, b meta.Binding) (*servedType, error)
	logger   *slog.Logger

	types atomic.Pointer[map[string]*servedType]
	mu    sync.Mutex // one refresh at a time
}

func newBindings(m *cluster.Metadata, logger *slog.Logger, compile func(context.Context, meta.Binding) (*servedType, error)) *bindings {
	b := &bindings{metadata: m, compile: compile, logger: logger}
	b.types.Store(&map[string]*servedType{})
	return b
}

// Lookup implements entity.Types.
func (b *bindings) Lookup(entityType string) *entity.Type {
	if t := b.served(entityType); t != nil {
		return &t.Type
	}
	return nil
}

func (b *bindings) served(entityType string) *servedType {
	return (*b.types.Load())[entityType]
}

// refresh makes the look-up table equal to the metadata, compiling what is
// new. What cannot be compiled keeps what was served before; the first such
// fault is returned after everything else is done.
func (b *bindings) refresh(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := *b.types.Load()
	next := make(map[string]*servedType, len(old))
	var first error
	for _, binding := range b.metadata.View().Bindings() {
		t := old[binding.EntityType]
		if t == nil || t.Digest != journal.Digest(binding.Digest) || t.Revision != binding.Revision {
			made, err := b.compile(ctx, binding)
			if err != nil {
				b.logger.Error("an active module cannot be loaded", "entity_type", binding.EntityType, "digest", binding.Digest.String(), "error", err)
				if first == nil {
					first = fmt.Errorf("load the module of entity type %s: %w", binding.EntityType, err)
				}
			} else {
				t = made
			}
		}
		if t != nil {
			next[binding.EntityType] = t
		}
	}
	b.types.Store(&next)
	return first
}

// run refreshes after each change of the metadata until ctx ends.
func (b *bindings) run(ctx context.Context) {
	var seen uint64
	for {
		changed := b.metadata.Changed()
		if rev := b.metadata.View().Revision(); rev != seen {
			if err := b.refresh(ctx); err == nil {
				seen = rev
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
