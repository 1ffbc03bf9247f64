package replay

import (
	"context"
	"errors"
	"sync"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

// fold is the state of an entity by one module, in an instance of its own.
type fold struct {
	module *engine.Module
	digest journal.Digest
	index  uint32
	bounds engine.InstanceOptions // of memory, those of the type
	most   int64                  // bytes of memory from which on the instance is left; 0: none
	loaded bool
	begin  []byte

	mu    sync.Mutex       // held to open and close it, and to interrupt it
	guest *engine.Instance // nil: none is open
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

// start makes the state of a sequence.
func (f *fold) start(ctx context.Context, id sharding.EntityID, at journal.Sequence, snapshot []byte) error {
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
	f.begin = abi.AppendSequence(abi.AppendEntityID(f.begin[:0], id.ID), uint64(at))
	if snapshot != nil {
		f.begin = abi.AppendSnapshot(f.begin, snapshot)
	}
	status, err := f.guest.Load(f.index, handle, f.begin)
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

// spoilt gives the fold up for this entity where its guest failed; other errors
// are passed on.
func (f *fold) spoilt(err error) error {
	var fault *engine.Fault
	if !errors.As(err, &fault) && !errors.Is(err, errRefused) {
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
