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
	// maxUpcastingOfType bounds the events of one type, because each needs a
	// guest instance.
	maxUpcasting       = 4
	maxUpcastingOfType = 2
	// keptUpcasters is how many idle instances are kept.
	keptUpcasters = maxUpcasting
	// fuelOfEvent is the amount of fuel that the pace counts as one more
	// replayed event. So the pace is checked after a few milliseconds of
	// upcasting. mostOfEvent bounds the count for one upcast.
	fuelOfEvent = 20_000
	mostOfEvent = 10 * piece
	// keptUpcasts bounds the cached descriptions of types and modules.
	keptUpcasts = 256
)

// UpcastOptions configure Upcasts. All are required.
type UpcastOptions struct {
	Types     servedTypes
	Modules   moduleLoader
	Metadata  clusterVersion
	Executors load // upcasts pause while the executors are busy
}

// servedTypes looks up the entity types that this node serves.
type servedTypes interface {
	// ServedType returns how a type is served, or nil.
	ServedType(entityType string) *modules.Served
	// For returns how an entity is served, or nil.
	For(sharding.EntityID) *modules.Served
}

// moduleLoader loads modules.
type moduleLoader interface {
	// Module returns a compiled module. holder is a node that has it, or "".
	Module(ctx context.Context, digest journal.Digest, holder sharding.NodeID) (*guest.Module, error)
}

// clusterVersion knows the cluster version.
type clusterVersion interface {
	ClusterVersion() sharding.ClusterVersion
}

// Upcasts converts stored events for readers into the current form of the
// module that serves the entity. It uses its own instances, outside of the
// executors. It is safe for concurrent use.
type Upcasts struct {
	metadata clusterVersion
	types    servedTypes
	modules  moduleLoader
	seats    *seats // one for each concurrent upcast

	mu     sync.Mutex
	about  map[upcasterKey]upcasts
	idle   []*upcaster // least recently used first
	closed bool
}

// NewUpcasts returns Upcasts. The caller must Close it.
func NewUpcasts(opts UpcastOptions) *Upcasts {
	return &Upcasts{
		metadata: opts.Metadata, types: opts.Types, modules: opts.Modules,
		seats: newSeats(maxUpcasting, maxUpcastingOfType, opts.Executors), about: map[upcasterKey]upcasts{},
	}
}

// upcasterKey identifies a module and a type that it serves.
type upcasterKey struct {
	digest     journal.Digest
	entityType string
}

// upcasts describes how a module upcasts the events of a type.
type upcasts struct {
	index  uint32
	old    map[string]string // current type of each older event type
	most   int               // maximum bytes of a payload
	json   bool              // payloads are JSON
	export bool              // the module exports the upcast function
}

// upcaster is an instance that upcasts the events of a type.
type upcaster struct {
	upcasterKey
	guest *guest.Instance
}

// Check returns an error if the events of a type cannot be upcast: if its
// module has older event forms but does not export the upcast function, or if
// the cluster version is too old, so that some nodes may not support it.
func (u *Upcasts) Check(ctx context.Context, entityType string) error {
	if level := u.metadata.ClusterVersion(); level < sharding.VersionUpcasts {
		return &status.RefusedError{Reason: sharding.VersionUpcasts.NeededBy("upcasting events for readers needs", level)}
	}
	s := u.types.ServedType(entityType)
	if s == nil {
		return request.ErrModuleNotLoaded
	}
	_, err := u.of(ctx, upcasterKey{s.Digest, entityType})
	return err
}

// of returns the upcasts of a module and type. It returns an error if the
// module has older event forms but does not export the upcast function.
func (u *Upcasts) of(ctx context.Context, key upcasterKey) (upcasts, error) {
	u.mu.Lock()
	about, known := u.about[key]
	u.mu.Unlock()
	if !known {
		m, err := u.modules.Module(ctx, key.digest, "")
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
		return about, &status.RefusedError{Reason: fmt.Sprintf("the active module of %s cannot upcast events for readers: it does not export %s", key.entityType, abi.ExportUpcast)}
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
		return about // states of other types are not in events
	}
	for i := range t.ReadsStates {
		about.old[manifest.StateEvent(t.ReadsStates[i].Version)] = states.Event()
		about.most = limits.SnapshotBytes
	}
	return about
}

// Upcast returns the type and payload of an entity's event in its current form,
// which is unchanged if the event already has it. The caller owns the payload.
// If ctx ends first, Upcast interrupts the guest and returns the error of ctx.
// If the guest fails or returns an invalid event, the error is a
// *request.GuestFaultError that names the event.
func (u *Upcasts) Upcast(ctx context.Context, id sharding.EntityID, at journal.Sequence, recordedAt int64, e *journal.Event) (name string, payload []byte, err error) {
	s := u.types.For(id)
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
	defer u.seats.release(id.Type, seat)
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
	return "", nil, &request.GuestFaultError{Message: fmt.Sprintf("cannot upcast event %d (%s) of %s: %v", at, e.Type, id, failed)}
}

// upcast returns the payload that the guest makes of an event. The result must
// have the event type to. If it fails, the instance must be closed.
func (g *upcaster) upcast(ctx context.Context, about *upcasts, to string, event []byte) ([]byte, error) {
	interrupted := make(chan struct{})
	calm := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		g.guest.Interrupt()
	})
	answer, err := g.guest.Upcast(about.index, event)
	if !calm() { // an interrupted instance is not used again
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
		return nil, fmt.Errorf("%s returned the event type %.100q, but the manifest says %s", abi.ExportUpcast, made, to)
	case about.json && len(payload) > 0 && !request.ValidJSON(payload):
		return nil, fmt.Errorf("%s returned a payload that is not JSON", abi.ExportUpcast)
	}
	return bytes.Clone(payload), nil
}

// take returns an idle instance, or creates one.
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
	m, err := u.modules.Module(ctx, key.digest, "")
	if err != nil {
		return nil, err
	}
	guest, err := m.InstantiateWith(ctx, s.MemoryBounds())
	if err != nil {
		return nil, err
	}
	return &upcaster{key, guest}, nil
}

// put keeps an instance for later events and closes the least recently used
// instance if there are too many.
func (u *Upcasts) put(g *upcaster) {
	u.mu.Lock()
	leaves := g
	if !u.closed {
		u.idle, leaves = append(u.idle, g), nil
	}
	if len(u.idle) > keptUpcasters {
		leaves = u.idle[0] // read it before append shifts the slice
		u.idle = append(u.idle[:0], u.idle[1:]...)
	}
	u.mu.Unlock()
	if leaves != nil {
		_ = leaves.guest.Close()
	}
}

// Close closes the instances. Later upcasts fail.
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
