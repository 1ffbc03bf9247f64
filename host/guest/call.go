package guest

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/tetratelabs/wazero/api"
)

func (f guestFunction) name() string {
	if f >= fnUpcast {
		return optional[f-fnUpcast].Name
	}
	return contract[f].Name
}

// Load creates the state of handle, either the initial state or the state in
// a snapshot frame. The status is LoadDone, LoadUnreadable or LoadNoRoom.
// After LoadUnreadable and LoadNoRoom there is no state, but the instance
// stays usable. typeIndex is the index of the entity type in the manifest.
// frames is not kept.
func (g *Instance) Load(typeIndex uint32, handle uint64, frames []byte) (abi.LoadStatus, error) {
	if err := g.put(frames, g.module.engine.limits.RequestBytes+abi.LoadExtraBytes); err != nil {
		return 0, err
	}
	g.stack = [3]uint64{uint64(typeIndex), handle, uint64(len(frames))}
	g.begin()
	if err := g.call(fnLoad, g.budgets.Load); err != nil {
		return 0, err
	}
	status := abi.LoadStatus(int32(g.stack[0]))
	if status < abi.LoadDone || status > abi.LoadNoRoom {
		return 0, g.fault(FaultStatus, fnLoad, "the status must be 0, 1 or 2, got %d", status)
	}
	return status, nil
}

// Apply evolves the state of handle by the event frames, in order. frames may
// have up to Limits.BatchBytes, or hold a single larger event. frames is not
// kept.
func (g *Instance) Apply(handle uint64, frames []byte) error {
	limits := &g.module.engine.limits
	if err := g.put(frames, max(limits.BatchBytes, limits.RequestBytes)); err != nil {
		return err
	}
	g.stack = [3]uint64{handle, uint64(len(frames))}
	g.begin()
	g.applying = frames
	err := g.call(fnApply, g.budgets.Event)
	g.applying = nil
	if err != nil {
		return err
	}
	if status := int32(g.stack[0]); status != abi.ApplyDone {
		return g.fault(FaultStatus, fnApply, "the guest failed to apply its events with status %d", status)
	}
	return nil
}

// Upcasts reports whether Upcast may be called.
func (g *Instance) Upcasts() bool { return g.module.Upcasts() }

// Upcast returns the current form of a stored event. frame is an event frame as
// for hostd_apply, and typeIndex is the index of the entity type in the
// manifest. The result should be an output event frame, which the caller must
// check. It is valid until the next call on the instance. Upcast needs no
// entity state and may be called only if Upcasts is true. frame is not kept.
func (g *Instance) Upcast(typeIndex uint32, frame []byte) ([]byte, error) {
	limits := &g.module.engine.limits
	if err := g.put(frame, limits.RequestBytes+abi.LoadExtraBytes); err != nil {
		return nil, err
	}
	g.stack = [3]uint64{uint64(typeIndex), uint64(len(frame))}
	g.begin()
	if err := g.call(fnUpcast, g.budgets.Load); err != nil {
		return nil, err
	}
	return g.take(fnUpcast, limits.OutputBytes)
}

// Handle decides on a command and evolves the state by the events that the
// guest emits. The result is the output frames, or nil if there are none; it is
// valid until the next call on the instance. The caller must check that they
// are valid frames. frames is not kept.
func (g *Instance) Handle(handle uint64, frames []byte, env Env) ([]byte, error) {
	return g.decide(fnHandle, handle, frames, env, g.budgets.Command)
}

// Query reads the state. It returns output frames, like Handle.
func (g *Instance) Query(handle uint64, frames []byte, env Env) ([]byte, error) {
	return g.decide(fnQuery, handle, frames, env, g.budgets.Query)
}

func (g *Instance) decide(f guestFunction, handle uint64, frames []byte, env Env, budget int64) ([]byte, error) {
	limits := &g.module.engine.limits
	if err := g.put(frames, limits.RequestBytes+abi.CallExtraBytes); err != nil {
		return nil, err
	}
	g.stack = [3]uint64{handle, uint64(len(frames))}
	g.begin()
	g.deciding = true
	g.clock = env.Now
	g.random = stream{env.Seed}
	g.system = stream{systemSeed(env.Seed)}
	g.meter.deadline, g.meter.long = env.Deadline, env.Long
	if err := g.call(f, budget); err != nil {
		return nil, err
	}
	return g.take(f, limits.OutputBytes)
}

// Snapshot returns the serialized state of handle, valid until the next call on
// the instance.
func (g *Instance) Snapshot(handle uint64) ([]byte, error) {
	g.stack = [3]uint64{handle}
	g.begin()
	if err := g.call(fnSnapshot, g.budgets.Load); err != nil {
		return nil, err
	}
	return g.take(fnSnapshot, g.module.engine.limits.SnapshotBytes)
}

// Drop discards the state of handle. The handle may be used again.
func (g *Instance) Drop(handle uint64) error {
	g.stack = [3]uint64{handle}
	g.begin()
	return g.call(fnDrop, g.budgets.Load)
}

// begin resets the results of host functions to the constants that a guest sees
// while it evolves state.
func (g *Instance) begin() {
	g.deciding = false
	g.clock = g.pureClock
	g.system = stream{g.pureSeed}
	g.hostCalls = 0
	g.words.begin()
	g.meter.deadline, g.meter.long = time.Time{}, nil
}

// call calls a function with the parameters in g.stack and leaves the result in
// g.stack[0]. budget is in units of fuel.
func (g *Instance) call(f guestFunction, budget int64) error {
	if g.dead {
		return ErrInstanceDead
	}
	fn := g.functions[f]
	if fn == nil {
		if fn = g.guest.ExportedFunction(f.name()); fn == nil {
			return g.fault(FaultTrap, f, "the function is missing")
		}
		g.functions[f] = fn
	}
	return g.run(f.name(), fn, budget)
}

// run calls fn with g.stack, and accounts for the fuel and the log lines of the
// call.
func (g *Instance) run(export string, fn api.Function, budget int64) (err error) {
	defer func() {
		if r := recover(); r != nil {
			g.dead = true
			err = panicError(export, r)
		}
		if err != nil {
			g.explain(err)
		}
		g.endTurn()
		g.meter.close()
		g.log.end()
	}()
	g.meter.open(budget)
	if err := fn.CallWithStack(g.ctx, g.stack[:]); err != nil {
		g.dead = true
		return faultOf(export, err)
	}
	if !g.affordable() {
		g.dead = true
		return faultOf(export, errFuel)
	}
	return nil
}

// fault marks the instance dead and returns the fault.
func (g *Instance) fault(kind FaultKind, f guestFunction, format string, args ...any) *Fault {
	g.dead = true
	fault := &Fault{Kind: kind, Export: f.name(), Message: fmt.Sprintf(format, args...)}
	g.explain(fault)
	return fault
}

// smallestBuffer is the minimum size, in bytes, of a requested buffer, so that
// a guest rarely has to be asked twice.
const smallestBuffer = 4 << 10

// put writes the input of the next call into the guest's buffer.
func (g *Instance) put(frames []byte, limit int) error {
	if g.dead {
		return ErrInstanceDead
	}
	if len(frames) > limit {
		return fmt.Errorf("%w: %d bytes, limit %d", errInputTooLarge, len(frames), limit)
	}
	if len(frames) > g.bufferBytes {
		if err := g.growBuffer(len(frames), limit); err != nil {
			return err
		}
	}
	if !g.guest.Memory().Write(g.buffer, frames) {
		return g.fault(FaultSpan, fnBuffer, "the buffer at %d does not lie inside memory", g.buffer)
	}
	return nil
}

// growBuffer asks the guest for a buffer of the next power of two, up to the
// limit.
func (g *Instance) growBuffer(need, limit int) error {
	size := min(max(1<<bits.Len(uint(need-1)), smallestBuffer), max(limit, need))
	g.stack = [3]uint64{uint64(size)}
	g.begin()
	if err := g.call(fnBuffer, g.budgets.Load); err != nil {
		return err
	}
	address := uint32(g.stack[0])
	if address == 0 {
		return g.fault(FaultNoBuffer, fnBuffer, "the guest allocated no buffer of %d bytes", size)
	}
	if !abi.PackSpan(address, uint32(size)).Within(uint64(g.memory.length)) {
		return g.fault(FaultSpan, fnBuffer, "a buffer of %d bytes at %d does not lie inside memory", size, address)
	}
	g.buffer, g.bufferBytes = address, size
	return nil
}

// take copies the span that the call of f returned out of the guest. If the
// span exceeds the limit, the fault is FaultOutput and the instance stays
// usable: only the answer is lost.
func (g *Instance) take(f guestFunction, limit int) ([]byte, error) {
	span := abi.Span(g.stack[0])
	if span.Length() == 0 {
		return nil, nil
	}
	if int64(span.Length()) > int64(limit) && span.Within(uint64(g.memory.length)) {
		fault := &Fault{Kind: FaultOutput, Export: f.name(), Message: fmt.Sprintf("%d bytes, limit %d", span.Length(), limit)}
		g.explain(fault)
		return nil, fault
	}
	view, ok := g.guest.Memory().Read(span.Address(), span.Length())
	if !ok {
		return nil, g.fault(FaultSpan, f, "%d bytes at %d do not lie inside memory of %d bytes",
			span.Length(), span.Address(), g.memory.length)
	}
	g.output = append(g.output[:0], view...)
	return g.output, nil
}

// describe calls the two functions that describe the module: first its contract
// version, then its manifest.
func (g *Instance) describe() ([]byte, error) {
	startFuel := int64(g.module.engine.limits.StartFuel)
	g.begin()
	if err := g.call(fnABI, startFuel); err != nil {
		return nil, err
	}
	if version := int32(g.stack[0]); version != abi.Version {
		return nil, wasm.Refuse("export "+abi.ExportABI, "returns %d; this host supports version %d of the ABI", version, abi.Version)
	}
	g.begin()
	if err := g.call(fnDescribe, startFuel); err != nil {
		return nil, err
	}
	text, err := g.take(fnDescribe, g.module.engine.limits.ManifestBytes)
	if err == nil && len(text) == 0 {
		err = errors.New("hostd_describe: the manifest is empty")
	}
	return text, err
}
