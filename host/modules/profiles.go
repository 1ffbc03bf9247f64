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

// mostProfiles bounds the entity types that are measured at a time.
const mostProfiles = 4

// profiles are those that are being taken, by entity type.
type profiles struct {
	mu sync.Mutex // of changes
	of atomic.Pointer[map[string]*guest.Profile]
}

// taken is the profile that is being taken of a type; nil for none.
func (p *profiles) taken(entityType string) *guest.Profile {
	if of := p.of.Load(); of != nil {
		return (*of)[entityType]
	}
	return nil
}

// change adds a type's profile, or takes it away.
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

// Profile says where the guests of lanes spend their fuel for the entities of a
// type, from now on for so long. It fails when ctx ends before.
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

// GuestStack is what guests have spent in one function, called by certain others.
type GuestStack struct {
	Functions []string // the one that spends first
	Samples   int64
	Fuel      int64
}

// ErrProfiling: what is asked for is being measured for somebody else.
var ErrProfiling = status.New(connect.CodeResourceExhausted, "as many profiles of that are being taken as may be: wait until one has ended")
