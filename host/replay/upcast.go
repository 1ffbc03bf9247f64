package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// maxUpcasting bounds the events that are upcast at a time, and
	// maxUpcastingOfType those of one type: each takes a guest instance.
	maxUpcasting       = 4
	maxUpcastingOfType = 2
	// keptUpcasters is how many instances are kept for the next event.
	keptUpcasters = maxUpcasting
	// fuelOfEvent is the fuel for which an event that is upcast counts as another
	// one that is folded: a piece of them takes some milliseconds. mostOfEvent is
	// for how many it counts at most.
	fuelOfEvent = 20_000
	mostOfEvent = 10 * piece
	// keptUpcasts is of how many types and modules it is kept what they upcast.
	keptUpcasts = 256
)

// UpcastOptions of Upcasts; all are required.
type UpcastOptions struct {
	Types   *modules.Types
	Modules *modules.Distribution
	// ClusterVersion is that of the cluster.
	Level func() sharding.ClusterVersion
	// Busy reports that requests wait for lanes: what is upcast waits for them.
	Busy func() bool
}

// Upcasts make of stored events, for readers, what the modules that serve their
// entities read them as: each beside the lanes, in instances of their own. It
// is safe for concurrent use.
type Upcasts struct {
	level  func() sharding.ClusterVersion
	active func(entityType string) *modules.Served
	serves func(sharding.EntityID) *modules.Served
	module func(context.Context, journal.Digest) (*guest.Module, error)
	seats  *seats // one for each event that is upcast

	mu     sync.Mutex
	about  map[upcasterKey]upcasts
	idle   []*upcaster // that was used last comes last
	closed bool
}

// NewUpcasts makes Upcasts; Close ends them.
func NewUpcasts(opts UpcastOptions) *Upcasts {
	return &Upcasts{
		level: opts.Level, active: opts.Types.Served, serves: opts.Types.For,
		module: func(ctx context.Context, digest journal.Digest) (*guest.Module, error) {
			return opts.Modules.Module(ctx, digest, "")
		},
		seats: newSeats(maxUpcasting, maxUpcastingOfType, opts.Busy), about: map[upcasterKey]upcasts{},
	}
}

// upcasterKey names a module as it serves a type.
type upcasterKey struct {
	digest     journal.Digest
	entityType string
}

// upcasts is what a module says of a type.
type upcasts struct {
	index  uint32
	old    map[string]string // types of events that it upcasts, and what of
	most   int               // bytes of a payload
	json   bool              // payloads are JSON
	export bool              // it does so for readers
}

// upcaster is an instance that upcasts the events of a type.
type upcaster struct {
	upcasterKey
	guest *guest.Instance
}

// Check refuses to upcast the events of a type whose module does not do so for
// readers though it has older forms, and in a cluster that may have nodes that
// do not know of it.
func (u *Upcasts) Check(ctx context.Context, entityType string) error {
	if level := u.level(); level < sharding.VersionUpcasts {
		return &status.RefusedError{Reason: fmt.Sprintf("events are upcast for readers at level %d, and the cluster is at level %d: hostd cluster upgrade finalize", sharding.VersionUpcasts, level)}
	}
	s := u.active(entityType)
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
		m, err := u.module(ctx, key.digest)
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
		return about, &status.RefusedError{Reason: fmt.Sprintf("the module that serves %s upcasts no events for readers: it has no export %s", key.entityType, abi.ExportUpcast)}
	}
	return about, nil
}

func upcastsOf(t *manifest.EntityType) upcasts {
	limits := abi.DefaultLimits()
	about := upcasts{old: map[string]string{}, most: limits.EventBytes, json: t.Encoding == manifest.JSON}
	for i := range t.Events {
		if to := t.Events[i].UpcastTo; to != "" {
			about.old[t.Events[i].Type] = to
		}
	}
	states := t.States()
	if t.Kind != manifest.DurableState {
		return about // states of others are in no event
	}
	for i := range t.ReadsStates {
		about.old[manifest.StateEvent(t.ReadsStates[i].Version)] = states.Event()
		about.most = limits.SnapshotBytes
	}
	return about
}

// Upcast returns the type and the payload of an entity's event in the form of
// today; those that it has where that is this one. The payload is the caller's.
// Where ctx ends first it is the error of that, and the guest is ended too. It
// is a *request.GuestFaultError, which names the event, where the guest fails
// or makes what is no event of the type.
func (u *Upcasts) Upcast(ctx context.Context, id sharding.EntityID, at journal.Sequence, recordedAt int64, e *journal.Event) (name string, payload []byte, err error) {
	s := u.serves(id)
	if s == nil {
		return "", nil, request.ErrModuleNotLoaded
	}
	key := upcasterKey{s.Digest, id.Type}
	about, err := u.of(ctx, key)
	if err != nil {
		return "", nil, err
	}
	to, old := about.old[e.Type]
	if !old {
		return e.Type, e.Payload, nil
	}
	seat, err := u.seats.take(ctx, id.Type)
	if err != nil {
		return "", nil, err
	}
	defer u.seats.give(id.Type, seat)
	if err := seat.pace.spend(ctx, 1); err != nil {
		return "", nil, err
	}
	g, err := u.take(ctx, key, s)
	if err != nil {
		return "", nil, err
	}
	made, failed := g.upcast(ctx, &about, to, abi.AppendInputEvent(nil, uint64(at), recordedAt, e.Type, e.Payload))
	seat.pace.due += int(min(g.guest.Fuel()/fuelOfEvent, mostOfEvent))
	if failed == nil {
		u.put(g)
		return to, made, nil
	}
	_ = g.guest.Close()
	switch {
	case ctx.Err() != nil:
		return "", nil, ctx.Err()
	case errors.Is(failed, guest.ErrClosed):
		return "", nil, request.ErrStopped
	}
	return "", nil, &request.GuestFaultError{Message: fmt.Sprintf("event %d (%s) of %s is not upcast: %v", at, e.Type, id, failed)}
}

// upcast returns the payload of an event as the guest reads it, which must be
// of the type to, until ctx ends. An instance that has failed is to be closed.
func (g *upcaster) upcast(ctx context.Context, about *upcasts, to string, event []byte) ([]byte, error) {
	interrupted := make(chan struct{})
	calm := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		g.guest.Interrupt()
	})
	answer, err := g.guest.Upcast(about.index, event)
	if !calm() { // what was interrupted is not used again
		<-interrupted
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return nil, err
	}
	made, payload, err := abi.UpcastEvent(answer, about.most)
	switch {
	case err != nil:
		return nil, g.guest.Condemn(abi.ExportUpcast, err)
	case string(made) != to:
		return nil, fmt.Errorf("%s makes it %.100q, and the manifest says %s", abi.ExportUpcast, made, to)
	case about.json && len(payload) > 0 && !request.ValidJSON(payload):
		return nil, fmt.Errorf("%s makes of it a payload that is not JSON", abi.ExportUpcast)
	}
	return bytes.Clone(payload), nil
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
	m, err := u.module(ctx, key.digest)
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
		leaves = u.idle[0] // in a statement of its own: the next one moves them
		u.idle = append(u.idle[:0], u.idle[1:]...)
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
