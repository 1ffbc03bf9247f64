package guest

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// sliceFuel is how much fuel a guest gets at a time. When the slice is spent,
// the guest calls the host, where the garbage collector can stop it and where
// it yields to other goroutines from time to time. A slice usually lasts some
// microseconds, and milliseconds if each of its units waits for memory.
const sliceFuel = 40_000

// Budgets bound the fuel that one call may spend. 0 selects the engine's limit.
type Budgets struct {
	Command int64 // budget of Handle
	Query   int64
	Event   int64 // budget of Apply for each event, so that the division of a history into batches does not matter
	Load    int64 // budget of Load, Snapshot, Drop and Upcast
}

func (b Budgets) withDefaults(l *abi.Limits) Budgets {
	for _, budget := range []struct {
		value *int64
		limit int
	}{{&b.Command, l.CommandFuel}, {&b.Query, l.QueryFuel}, {&b.Event, l.EventFuel}, {&b.Load, l.LoadFuel}} {
		if *budget.value == 0 {
			*budget.value = int64(budget.limit)
		}
	}
	return b
}

// account tracks the fuel of the current call. The guest's own counter holds
// the unspent fuel of the slice; the rest of the budget is kept here.
//
// Problem: a guest's machine code cannot be stopped from outside, and a loop in it
// would block the garbage collector, and with it every goroutine of the process.
// A limit must also be the same on every node, because it may decide that a
// command fails.
//
// Approach: package wasm rewrites each module so that it counts its work in two
// globals, fuel and stack, and calls refuel when one is spent. The budget of a
// call is given in slices:
//
//	open ─── give ──▶ guest runs ── slice spent ──▶ refuel ── give ──▶ ...
//	                      │                           │ budget spent, interrupted,
//	                      ▼                           ▼ past its deadline
//	                   returns                      panic, which ends the call
//
// So the host gets control every few microseconds. There it stops a call that
// is over its budget, was interrupted or is late, yields, and queues long calls
// for a slot, of which there are fewer than processors.
//
// Invariants: the fuel of a call depends only on the module and on the earlier
// calls of its instance, so it is equal on all nodes; slices, deadlines and
// yields do not change it. A call that exceeds its budget ends at its next check.
// Apply has a budget for each event, so that the division of a history into
// batches does not decide whether an event is applied.
//
// Rejected: the runtime's own interruption, which costs 3 to 20 times the
// unmetered time; limits by the wall clock, which differ between nodes; and one
// slice for the whole budget, because nothing could stop the call before it is
// spent. See docs/decisions/metered-fuel-instead-of-interruption.md.
type account struct {
	fuel, stack api.MutableGlobal
	budget      int64
	rest        int64 // part of the budget not yet given to the guest
	used        int64 // fuel spent by the last call
	deadline    time.Time
	long        preempter // see Env.Long
	interrupted atomic.Bool
	slices      int  // slices given in this call
	turn        bool // the call holds a slot of Engine.turns
	sampling    sampling
}

// A call that runs for shortCall slices, about half a millisecond, must hold
// a slot of Engine.turns from then on. There are fewer slots than processors,
// so that one processor is left for everything else. (Go polls the network
// when a processor is idle. With a guest running on every processor, every
// network hop takes 10 ms.) After turnSlices the call releases its slot and
// queues for it again.
//
// After yieldSlices, about half a millisecond, the call yields to goroutines
// that are ready. A goroutine that yields goes to the end of Go's global queue,
// which a busy process looks at only occasionally. On an overloaded machine
// that costs milliseconds: when calls yielded after every 100,000 units, a
// garbage collection in a large Go guest, which needs 5,000 slices, took
// seconds.
const (
	shortCall   = 30
	turnSlices  = 60
	yieldSlices = 40
)

// takeTurn waits for a slot of Engine.turns if the call is long.
func (g *Instance) takeTurn() {
	m := &g.meter
	if m.slices++; m.slices < shortCall {
		return
	}
	if m.slices == shortCall && m.long != nil {
		m.long.Preempt()
	}
	turns := g.module.engine.turns
	if m.turn && m.slices%turnSlices == 0 {
		<-turns
		m.turn = false
	}
	if !m.turn {
		turns <- struct{}{}
		m.turn = true
	}
}

// endTurn releases the slot, if the call holds one.
func (g *Instance) endTurn() {
	if g.meter.turn {
		<-g.module.engine.turns
		g.meter.turn = false
	}
}

// attach finds the guest's counters.
func (m *account) attach(guest api.Module) error {
	var fuel, stack bool
	m.fuel, fuel = guest.ExportedGlobal(wasm.ExportFuel).(api.MutableGlobal)
	m.stack, stack = guest.ExportedGlobal(wasm.ExportStack).(api.MutableGlobal)
	if !fuel || !stack {
		return errors.New("the module has no fuel metering")
	}
	return nil
}

// open begins a call with the given fuel budget.
func (m *account) open(budget int64) {
	m.budget, m.rest, m.slices = budget, budget, 0
	m.give()
}

func (m *account) give() {
	slice := m.sampling.slice(min(sliceFuel, m.rest))
	m.rest -= slice
	m.fuel.Set(uint64(slice))
}

// close computes the fuel that the call used.
func (m *account) close() {
	m.used = m.budget - m.rest - int64(m.fuel.Get())
	if m.sampling.profile != nil {
		m.sampling.spend(int64(m.fuel.Get()))
	}
}

// spendBytes charges for n bytes that a host function reads or writes. The
// guest notices at its next fuel check.
func (g *Instance) spendBytes(n int) {
	m := &g.meter
	m.fuel.Set(m.fuel.Get() - uint64(n/wasm.BytesPerUnit))
}

// refuel is the host function that a guest calls when its slice or its stack is
// spent.
func (g *Instance) refuel() {
	m := &g.meter
	if int64(m.stack.Get()) < 0 {
		panic(exhausted{FaultStack, "the call stack is spent: the guest recurses too deeply"})
	}
	if !g.affordable() {
		panic(errFuel)
	}
	m.rest += int64(m.fuel.Get()) // the guest may have spent more than its slice
	turned := m.sampling.takeSlice()
	if turned {
		g.takeTurn()
	}
	if m.interrupted.Load() {
		panic(ErrInterrupted)
	}
	if !m.deadline.IsZero() && time.Now().After(m.deadline) {
		panic(ErrDeadline)
	}
	if turned && m.slices%yieldSlices == 0 {
		runtime.Gosched()
	}
	m.give()
}

// errFuel ends a call that exceeds its budget.
var errFuel = exhausted{FaultFuel, "the call's fuel is spent"}

// affordable reports whether the call is still within its budget.
func (g *Instance) affordable() bool {
	m := &g.meter
	if left := int64(m.fuel.Get()); m.rest+left < 0 {
		g.widen()
		return m.rest+left >= 0
	}
	return true
}

// widen raises the budget of an Apply from the budget of one event to the sum
// for all its events. The events are counted only here, when the budget of
// one event was not enough, because most calls never need their number.
func (g *Instance) widen() {
	if g.applying == nil {
		return
	}
	events := int64(0)
	for reader := abi.NewReader(g.applying); ; events++ {
		if _, ok, err := reader.Next(); err != nil || !ok {
			break
		}
	}
	g.applying = nil
	if events > 1 {
		added := g.meter.budget * (events - 1)
		g.meter.budget += added
		g.meter.rest += added
	}
}

// exhausted is the value that refuel panics with to end a call.
type exhausted struct {
	kind FaultKind
	text string
}

func (e exhausted) Error() string { return e.text }

// Fuel returns the fuel that the last call spent, even if it failed. The same
// calls on a new instance spend the same fuel on every node.
func (g *Instance) Fuel() int64 { return g.meter.used }

// SetBudgets sets the fuel budgets of the following calls.
func (g *Instance) SetBudgets(b Budgets) {
	g.budgets = b.withDefaults(&g.module.engine.limits)
}

// Interrupt makes the current call, or the next call that spends a slice, end
// with ErrInterrupted. It may be called from any goroutine until Close.
func (g *Instance) Interrupt() { g.meter.interrupted.Store(true) }

// registerMeter creates the import module of the meter in the runtime.
func (e *Engine) registerMeter(ctx context.Context) error {
	refuel := func(ctx context.Context, _ api.Module, _ []uint64) {
		ctx.(*callContext).instance.refuel()
	}
	ctx = experimental.WithFunctionListenerFactory(ctx, sampler{})
	_, err := e.runtime.NewHostModuleBuilder(wasm.ImportModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(refuel), nil, nil).Export(wasm.ImportRefuel).Instantiate(ctx)
	return err
}
