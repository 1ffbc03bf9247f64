package modules

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/status"
)

// mostProfiles bounds the entity types that are profiled at a time.
const mostProfiles = 4

// profiles are the running profiles, by entity type.
type profiles struct {
	mu sync.Mutex // serializes changes
	of atomic.Pointer[map[string]*guest.Profile]
}

// running returns the running profile of a type, or nil.
func (p *profiles) running(entityType string) *guest.Profile {
	if of := p.of.Load(); of != nil {
		return (*of)[entityType]
	}
	return nil
}

// change adds the profile of a type, or removes it if to is nil.
func (p *profiles) change(entityType string, to *guest.Profile) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := map[string]*guest.Profile{}
	if of := p.of.Load(); of != nil {
		maps.Copy(next, *of)
	}
	if to == nil {
		delete(next, entityType)
	} else if len(next) >= mostProfiles || next[entityType] != nil {
		return ErrProfiling
	} else {
		next[entityType] = to
	}
	if p.of.Store(&next); len(next) == 0 {
		p.of.Store(nil)
	}
	return nil
}

// Profile samples where the guests of executors spend their fuel for entities
// of a type. It lasts for the given duration, and fails if ctx ends earlier.
func (t *Types) Profile(ctx context.Context, entityType string, long time.Duration) ([]GuestStack, error) {
	p := guest.NewProfile(rand.Uint64())
	if err := t.profiles.change(entityType, p); err != nil {
		return nil, err
	}
	end := time.NewTimer(long)
	defer end.Stop()
	select {
	case <-end.C:
	case <-ctx.Done():
	}
	if err := t.profiles.change(entityType, nil); err != nil || ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var out []GuestStack
	for _, s := range p.Stacks() {
		out = append(out, GuestStack(s))
	}
	return out, nil
}

// GuestStack is the fuel spent under one call stack.
type GuestStack struct {
	Functions []string // function names, innermost first
	Samples   int64
	Fuel      int64
}

// ErrProfiling: too many profiles are running, or a profile of the same type
// is running.
var ErrProfiling = status.New(connect.CodeResourceExhausted, "too many profiles of this kind are running: retry when one has ended")
