package replay

import (
	"bytes"
	"context"
	"errors"
	"sync"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

const (
	// batchBytes is how much of the events a guest gets at once.
	batchBytes = 128 << 10
	// handle is the one entity of an instance.
	handle = 1
)

// fold is the state of an entity by one module, in an instance of its own. It
// is a folder.
type fold struct {
	module  *guest.Module
	digest  journal.Digest
	use     journal.SnapshotUse // of begin; nil: snapshots of the module alone
	index   uint32
	states  manifest.States          // versions of those of a durable type, and in snapshots
	version func(journal.Digest) int // of the states in snapshots that use accepts; nil: all are the module's own
	bounds  guest.InstanceOptions    // of memory, those of the type
	most    int64                    // bytes of memory from which on the instance is left; 0: none
	batches batches
	loaded  bool
	input   []byte // of load

	frames []byte // of events that the guest did not get yet
	added  int    // how many they are
	room   int    // how many they may be; 0: any
	last   journal.Sequence

	mu    sync.Mutex      // held to open and close it, and to interrupt it
	guest *guest.Instance // nil: none is open
}

// batches says how many events a guest gets at once. What it makes of them must
// not depend on that.
type batches uint8

const (
	full    batches = iota // as many as batchBytes have
	paced                  // a piece
	growing                // one, then two, then four, up to a piece
	single                 // one
)

// first is how many the first ones are; 0 is any.
func (b batches) first() int {
	switch b {
	case full:
		return 0
	case paced:
		return piece
	}
	return 1
}

// bound has the fold go by the type's bounds of memory, as where the module
// serves: an instance that is nearly full to one is left for another.
func (f *fold) bound(t *modules.Served) {
	f.bounds = t.MemoryBounds()
	for _, bytes := range []int64{t.API.Limits.MemoryBytes, t.API.Limits.TypeMemoryBytes} {
		if full := bytes * 3 / 4; bytes > 0 && (f.most == 0 || full < f.most) {
			f.most = full
		}
	}
}

// errRefused: the guest does not take the snapshot, or makes no initial state.
var errRefused = errors.New("the module refuses the state")

// guestFails reports that an error is the guest's.
func guestFails(err error) bool {
	var fault *guest.Fault
	var unread *manifest.UnreadStateError
	return errors.As(err, &fault) || errors.Is(err, errRefused) || errors.As(err, &unread)
}

// start implements folder.
func (f *fold) start(ctx context.Context, id sharding.EntityID, at journal.Sequence, from given) error {
	f.frames, f.added, f.room = f.frames[:0], 0, f.batches.first()
	if f.loaded {
		f.loaded = false
		if f.guest.Drop(handle) != nil || f.most > 0 && f.guest.MemoryBytes() >= f.most {
			f.close() // for the entity before, which is no matter of this one
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
		return err // a guest that is not told of versions would misread it
	}
	f.input = abi.AppendSequence(abi.AppendEntityID(f.input[:0], id.ID), uint64(at))
	if from.state != nil {
		f.input = abi.AppendSnapshot(f.input, from.state)
	}
	if version := f.states.Given(from.version); version != 0 {
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

// aside is the handle of a state that is only looked at.
const aside = handle + 1

// migrate is what the module makes of a state of another version, beside the one
// that it has. An instance whose guest failed is closed.
func (f *fold) migrate(id sharding.EntityID, at journal.Sequence, from given) ([]byte, error) {
	if f.guest == nil {
		return nil, guest.ErrInstanceDead
	}
	input := abi.AppendSequence(abi.AppendEntityID(nil, id.ID), uint64(at))
	input = abi.AppendStateVersion(abi.AppendSnapshot(input, from.state), f.states.Given(from.version))
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

// begin makes the state that events are applied to, and returns its sequence:
// of the newest snapshot of the module below a sequence that the guest takes,
// as a lane does, or the initial one. below 0 is any.
func (f *fold) begin(ctx context.Context, m *eventlog.Machine, shard sharding.ShardID, id sharding.EntityID, below journal.Sequence) (journal.Sequence, error) {
	for refused := false; ; refused = true {
		use := f.use
		if use == nil || refused {
			use = journal.SnapshotsBy(f.digest)
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

// add implements folder.
func (f *fold) add(_ context.Context, e event) error {
	f.frames = abi.AppendInputEvent(f.frames, uint64(e.sequence), e.recordedAt, e.name, e.payload)
	f.added++
	if f.last = e.sequence; len(f.frames) >= batchBytes || f.added == f.room {
		return f.flush()
	}
	return nil
}

// flush implements folder. An instance whose guest failed is closed.
func (f *fold) flush() error {
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

// snapshot is the state, until the next call of the guest. An instance whose
// guest failed is closed.
func (f *fold) snapshot() ([]byte, error) {
	if f.guest == nil {
		return nil, guest.ErrInstanceDead
	}
	state, err := f.guest.Snapshot(handle)
	if err != nil {
		f.close()
	}
	return state, err
}

// spoilt gives the fold up for this entity where its guest failed; other errors
// are passed on.
func (f *fold) spoilt(err error) error {
	if !guestFails(err) {
		return err
	}
	f.close()
	return nil
}

func (f *fold) interrupt() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.guest != nil {
		f.guest.Interrupt()
	}
}

func (f *fold) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.guest != nil {
		f.guest.Close()
	}
	f.guest, f.loaded = nil, false
}
