package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// maxUpcasting bounds the events that are upcast at a time: each takes a guest
	// instance.
	maxUpcasting = 2
	// keptUpcasters is how many instances are kept for the next event.
	keptUpcasters = 2
	// keptUpcasts is of how many types and modules it is kept what they upcast.
	keptUpcasts = 256
)

// UpcastOptions of Upcasts; all are required.
type UpcastOptions struct {
	Types   *modules.Types
	Modules *modules.Distribution
	// Level is that of the cluster.
	Level func() sharding.Level
}

// Upcasts make of stored events, for readers, what the modules that serve their
// entities read them as: each beside the lanes, in instances of their own. It
// is safe for concurrent use.
type Upcasts struct {
	opts  UpcastOptions
	slots chan struct{} // one for each event that is upcast

	mu     sync.Mutex
	about  map[upcasterKey]upcasts
	idle   []*upcaster // that was used last comes last
	closed bool
}

// NewUpcasts makes Upcasts; Close ends them.
func NewUpcasts(opts UpcastOptions) *Upcasts {
	return &Upcasts{opts: opts, slots: make(chan struct{}, maxUpcasting), about: map[upcasterKey]upcasts{}}
}

// upcasterKey names a module as it serves a type.
type upcasterKey struct {
	digest     journal.Digest
	entityType string
}

// upcasts is what a module says of a type.
type upcasts struct {
	index  uint32
	old    map[string]bool // types of events that it upcasts
	most   int             // bytes of a payload
	export bool            // it does so for readers
}

// upcaster is an instance that upcasts the events of a type.
type upcaster struct {
	upcasterKey
	guest *engine.Instance
}

// Check refuses to upcast the events of a type whose module does not do so for
// readers though it has older forms, and in a cluster that may have nodes that
// do not know of it.
func (u *Upcasts) Check(ctx context.Context, entityType string) error {
	if level := u.opts.Level(); level < sharding.LevelUpcasts {
		return &rpc.RefusedError{Reason: fmt.Sprintf("events are upcast for readers at level %d, and the cluster is at level %d: hostd cluster raise-level", sharding.LevelUpcasts, level)}
	}
	s := u.opts.Types.Served(entityType)
	if s == nil {
		return request.ErrModuleNotLoaded
	}
	_, err := u.of(ctx, upcasterKey{s.Digest, entityType})
	return err
}

// of is what a module says of a type; refused where it has older forms, and no
// export that upcasts them.
func (u *Upcasts) of(ctx context.Context, key upcasterKey) (upcasts, error) {
	u.mu.Lock()
	about, known := u.about[key]
	u.mu.Unlock()
	if !known {
		m, err := u.opts.Modules.Module(ctx, key.digest, "")
		if err != nil {
			return about, err
		}
		t, index, ok := m.Manifest().Type(key.entityType)
		if !ok {
			return about, &request.InvalidModuleError{Reason: fmt.Sprintf("the module does not serve entity type %q", key.entityType)}
		}
		about = upcastsOf(t)
		about.index, about.export = uint32(index), m.Upcasts()
		u.mu.Lock()
		if len(u.about) >= keptUpcasts {
			clear(u.about)
		}
		u.about[key] = about
		u.mu.Unlock()
	}
	if len(about.old) > 0 && !about.export {
		return about, &rpc.RefusedError{Reason: fmt.Sprintf("the module that serves %s upcasts no events for readers: it has no export %s", key.entityType, abi.ExportUpcast)}
	}
	return about, nil
}

func upcastsOf(t *manifest.EntityType) upcasts {
	limits := abi.DefaultLimits()
	about := upcasts{old: map[string]bool{}, most: limits.EventBytes}
	for i := range t.Events {
		if t.Events[i].UpcastTo != "" {
			about.old[t.Events[i].Type] = true
		}
	}
	for i := range t.ReadsStates {
		about.old[manifest.StateEvent(t.ReadsStates[i].Version)] = true
		about.most = limits.SnapshotBytes
	}
	return about
}

// Upcast returns the type and the payload of an entity's event in the form of
// today; those that it has where that is this one. The payload is the caller's.
// Where ctx ends before a guest has time it is the error of that.
func (u *Upcasts) Upcast(ctx context.Context, id sharding.EntityID, at journal.Sequence, recordedAt int64, e *journal.Event) (name string, payload []byte, err error) {
	s := u.opts.Types.For(id)
	if s == nil {
		return "", nil, request.ErrModuleNotLoaded
	}
	key := upcasterKey{s.Digest, id.Type}
	about, err := u.of(ctx, key)
	if err != nil {
		return "", nil, err
	}
	if !about.old[e.Type] {
		return e.Type, e.Payload, nil
	}
	select {
	case u.slots <- struct{}{}:
		defer func() { <-u.slots }()
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
	g, err := u.take(ctx, key, s)
	if err != nil {
		return "", nil, err
	}
	answer, err := g.guest.Upcast(about.index, abi.AppendInputEvent(nil, uint64(at), recordedAt, e.Type, e.Payload))
	if err == nil {
		var made []byte
		if made, payload, err = abi.UpcastEvent(answer, about.most); err == nil {
			name, payload = string(made), bytes.Clone(payload)
		}
	}
	if err != nil {
		_ = g.guest.Close()
		if errors.Is(err, engine.ErrClosed) {
			return "", nil, request.ErrStopped
		}
		return "", nil, &request.GuestFaultError{Message: fmt.Sprintf("event %d (%s) is not upcast: %v", at, e.Type, err)}
	}
	u.put(g)
	return name, payload, nil
}

// take returns an instance that nobody else uses.
func (u *Upcasts) take(ctx context.Context, key upcasterKey, s *modules.Served) (*upcaster, error) {
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return nil, request.ErrStopped
	}
	for i := len(u.idle) - 1; i >= 0; i-- {
		if g := u.idle[i]; g.upcasterKey == key {
			u.idle = append(u.idle[:i], u.idle[i+1:]...)
			u.mu.Unlock()
			return g, nil
		}
	}
	u.mu.Unlock()
	m, err := u.opts.Modules.Module(ctx, key.digest, "")
	if err != nil {
		return nil, err
	}
	guest, err := m.InstantiateWith(ctx, s.MemoryBounds())
	if err != nil {
		return nil, err
	}
	return &upcaster{key, guest}, nil
}

// put keeps an instance for the next event, in the place of the one that was
// used longest ago.
func (u *Upcasts) put(g *upcaster) {
	u.mu.Lock()
	leaves := g
	if !u.closed {
		u.idle, leaves = append(u.idle, g), nil
	}
	if len(u.idle) > keptUpcasters {
		leaves, u.idle = u.idle[0], append(u.idle[:0], u.idle[1:]...)
	}
	u.mu.Unlock()
	if leaves != nil {
		_ = leaves.guest.Close()
	}
}

// Close ends the instances. Events that are asked for later are not upcast.
func (u *Upcasts) Close(context.Context) error {
	u.mu.Lock()
	idle := u.idle
	u.idle, u.closed = nil, true
	u.mu.Unlock()
	var all error
	for _, g := range idle {
		all = errors.Join(all, g.guest.Close())
	}
	return all
}
