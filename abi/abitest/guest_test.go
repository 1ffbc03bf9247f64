package abitest

import (
	"context"
	"fmt"

	"github.com/hostd/hostd/abi"
	hostd "github.com/hostd/hostd/guest-sdk/go"
)

// native runs a module of the Go SDK without Wasm. Its argument is the
// instance's seed, so that a guest can be made to depend on it.
type native func(seed uint64) *hostd.Guest

func (n native) Describe() (text []byte, err error) {
	defer trapped(&err)
	return n(0).Describe(), nil
}

func (n native) Open(_ context.Context, seed uint64) (Instance, error) {
	return &nativeInstance{guest: n(seed)}, nil
}

type nativeInstance struct {
	guest *hostd.Guest
	fault error // if set, every call fails with this error
}

// trapped converts a panic of the guest to a fault, as inside Wasm.
func trapped(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("trap: %v", r)
	}
}

func (i *nativeInstance) call(f func()) (err error) {
	if i.fault != nil {
		return i.fault
	}
	defer func() { i.fault = err }()
	defer trapped(&err)
	f()
	return nil
}

func (i *nativeInstance) Load(typ uint32, handle uint64, frames []byte) (status abi.LoadStatus, err error) {
	err = i.call(func() { status = i.guest.Load(int32(typ), int64(handle), frames) })
	return status, err
}

func (i *nativeInstance) Apply(handle uint64, frames []byte) error {
	return i.call(func() {
		if status := i.guest.Apply(int64(handle), frames); status != abi.ApplyDone {
			panic(fmt.Sprintf("apply answers %d", status))
		}
	})
}

func (i *nativeInstance) Handle(handle uint64, frames []byte, _ Env) (out []byte, err error) {
	err = i.call(func() { out = i.guest.Handle(int64(handle), frames) })
	return out, err
}

func (i *nativeInstance) Query(handle uint64, frames []byte, _ Env) (out []byte, err error) {
	err = i.call(func() { out = i.guest.Query(int64(handle), frames) })
	return out, err
}

func (i *nativeInstance) Snapshot(handle uint64) (state []byte, err error) {
	err = i.call(func() { state = i.guest.Snapshot(int64(handle)) })
	return state, err
}

func (i *nativeInstance) Drop(handle uint64) error {
	return i.call(func() { i.guest.Drop(int64(handle)) })
}

func (i *nativeInstance) Close() error { return nil }

// bent is an opener that wraps its instances to plant a fault.
type bent struct {
	Opener
	bend func(Instance) Instance
}

func (b bent) Open(ctx context.Context, seed uint64) (Instance, error) {
	g, err := b.Opener.Open(ctx, seed)
	return b.bend(g), err
}

func (i *nativeInstance) Upcasts() bool { return true }

func (i *nativeInstance) Upcast(typ uint32, frame []byte) (out []byte, err error) {
	err = i.call(func() { out = i.guest.Upcast(int32(typ), frame) })
	return out, err
}
