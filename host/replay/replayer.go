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
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

const (
	// batchBytes bounds the bytes of events passed to a guest at once.
	batchBytes = 128 << 10
	// handle is the handle of the only entity in an instance.
	handle = 1
)

// replayer computes the state of an entity with one module, in its own
// instance. It implements stateBuilder.
type replayer struct {
	module    *guest.Module
	digest    journal.Digest
	snapshots journal.SnapshotUse // snapshots that begin accepts; nil: the module's own, and checkpoints
	index     uint32
	states    manifest.States          // state versions of a durable type, and of states in snapshots
	version   func(journal.Digest) int // state version of a foreign module's snapshots; nil: the module's own version
	bounds    guest.InstanceOptions    // memory limits of the type
	most      int64                    // memory size in bytes from which the instance is replaced; 0: none
	batches   batches
	loaded    bool
	input     []byte // buffer for Load

	frames []byte // event frames not yet passed to the guest
	added  int    // number of events in frames
	room   int    // maximum of added; 0: no bound
	last   journal.Sequence

	mu    sync.Mutex      // protects guest against Interrupt while it is opened or closed
	guest *guest.Instance // nil: no instance is open
}

// batches is how many events a guest gets at once. The resulting state must not
// depend on it.
type batches uint8

const (
	full    batches = iota // as many as fit into batchBytes
	paced                  // piece events
	growing                // 1, 2, 4 and so on, up to piece
	single                 // one event
)

// first returns the size of the first batch; 0 means no bound.
func (b batches) first() int {
	switch b {
	case full:
		return 0
	case paced:
		return piece
	}
	return 1
}

// use sets the module and the entity type, and returns how the module declares
// the type. No instance may be open.
func (f *replayer) use(m *guest.Module, digest journal.Digest, entityType string) (*manifest.EntityType, error) {
	about, index, ok := m.Manifest().Type(entityType)
	if !ok {
		return nil, &request.InvalidModuleError{Reason: fmt.Sprintf("the module does not serve entity type %q", entityType)}
	}
	f.module, f.digest, f.index, f.states = m, digest, uint32(index), about.States()
	return about, nil
}

// setBounds applies the type's memory limits, as for the serving instances. An
// instance that is nearly full is replaced before the next entity.
func (f *replayer) setBounds(t *modules.Served) {
	f.bounds = t.MemoryBounds()
	for _, bytes := range []int64{t.API.Limits.MemoryBytes, t.API.Limits.TypeMemoryBytes} {
		if full := bytes * 3 / 4; bytes > 0 && (f.most == 0 || full < f.most) {
			f.most = full
		}
	}
}

// errRefused: the guest rejects the snapshot, or cannot create an initial
// state.
var errRefused = errors.New("the module rejects the state")

// guestFails reports whether the guest is responsible for an error.
func guestFails(err error) bool {
	var fault *guest.Fault
	var unread *manifest.UnreadStateError
	return errors.As(err, &fault) || errors.Is(err, errRefused) || errors.As(err, &unread)
}

// start implements stateBuilder.
func (f *replayer) start(ctx context.Context, id sharding.EntityID, at journal.Sequence, from given) error {
	f.frames, f.added, f.room = f.frames[:0], 0, f.batches.first()
	if f.loaded {
		f.loaded = false
		if f.guest.Drop(handle) != nil || f.most > 0 && f.guest.MemoryBytes() >= f.most {
			f.close() // an error of Drop concerns only the previous entity
		}
	}
	if f.guest == nil {
		guest, err := f.module.InstantiateWith(ctx, f.bounds)
		if err != nil {
			return err
		}
		f.mu.Lock()
		f.guest = guest
		f.mu.Unlock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if err := f.states.Check(from.version); err != nil {
		return err // a guest that does not know state versions would misread the state
	}
	f.input = abi.AppendSequence(abi.AppendEntityID(f.input[:0], id.ID), uint64(at))
	if from.state != nil {
		f.input = abi.AppendSnapshot(f.input, from.state)
	}
	if version := f.states.InputVersion(from.version); version != 0 {
		f.input = abi.AppendStateVersion(f.input, version)
	}
	status, err := f.guest.Load(f.index, handle, f.input)
	switch {
	case err != nil:
		f.close()
	case status != abi.LoadDone:
		err = errRefused
	default:
		f.loaded = true
	}
	return err
}

// aside is the handle of a second state, which is only inspected.
const aside = handle + 1

// migrate lets the module migrate a state of another version and returns the
// result, without touching the entity's state. If the guest fails, the instance
// is closed.
func (f *replayer) migrate(id sharding.EntityID, at journal.Sequence, from given) ([]byte, error) {
	if f.guest == nil {
		return nil, guest.ErrInstanceDead
	}
	input := abi.AppendSequence(abi.AppendEntityID(nil, id.ID), uint64(at))
	input = abi.AppendStateVersion(abi.AppendSnapshot(input, from.state), f.states.InputVersion(from.version))
	status, err := f.guest.Load(f.index, aside, input)
	if err == nil && status != abi.LoadDone {
		return nil, errRefused
	}
	var state []byte
	if err == nil {
		state, err = f.guest.Snapshot(aside)
		state = bytes.Clone(state)
	}
	if err == nil {
		err = f.guest.Drop(aside)
	}
	if err != nil {
		f.close()
	}
	return state, err
}

// begin creates the state that events are applied to and returns its sequence.
// Like an executor, it uses the newest usable snapshot that was made before the
// sequence below and that the guest accepts, or else the initial state. If
// below is 0, any snapshot will do.
func (f *replayer) begin(ctx context.Context, m *eventlog.Machine, shard sharding.ShardID, id sharding.EntityID, below journal.Sequence) (journal.Sequence, error) {
	for refused := false; ; refused = true {
		use := f.snapshots
		if use == nil || refused {
			use = journal.SnapshotsBy(f.digest, journal.NoModule)
		}
		snap, err := m.Snapshot(ctx, shard, id, use, below)
		if err != nil {
			return 0, err
		}
		if snap == nil {
			return 0, f.start(ctx, id, 0, given{})
		}
		below = snap.Sequence
		from := given{state: snap.State}
		if f.version != nil && snap.Module != f.digest {
			from.version = f.version(snap.Module)
		}
		if err := f.start(ctx, id, below, from); !guestFails(err) || ctx.Err() != nil {
			return below, err
		}
	}
}

// add implements stateBuilder.
func (f *replayer) add(_ context.Context, e event) error {
	f.frames = abi.AppendInputEvent(f.frames, uint64(e.sequence), e.recordedAt, e.name, e.payload)
	f.added++
	if f.last = e.sequence; len(f.frames) >= batchBytes || f.added == f.room {
		return f.flush()
	}
	return nil
}

// flush implements stateBuilder. If the guest fails, the instance is closed.
func (f *replayer) flush() error {
	if f.added == 0 {
		return nil
	}
	if f.guest == nil {
		return guest.ErrInstanceDead
	}
	err := f.guest.Apply(handle, f.frames)
	f.frames, f.added = f.frames[:0], 0
	if f.batches == growing {
		f.room = min(2*f.room, piece)
	}
	if err != nil {
		f.close()
	}
	return err
}

// snapshot returns the state, valid until the next call of the guest. If the
// guest fails, the instance is closed.
func (f *replayer) snapshot() ([]byte, error) {
	if f.guest == nil {
		return nil, guest.ErrInstanceDead
	}
	state, err := f.guest.Snapshot(handle)
	if err != nil {
		f.close()
	}
	return state, err
}

// If err says that the guest failed, spoilt closes the instance and returns
// nil. It returns every other err unchanged.
func (f *replayer) spoilt(err error) error {
	if !guestFails(err) {
		return err
	}
	f.close()
	return nil
}

func (f *replayer) interrupt() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.guest != nil {
		f.guest.Interrupt()
	}
}

func (f *replayer) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.guest != nil {
		f.guest.Close()
	}
	f.guest, f.loaded = nil, false
}
