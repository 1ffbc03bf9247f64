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

// sliceFuel is what a guest gets at a time. When it is spent the guest
// calls the host, where the collector can stop it and, now and then, other
// goroutines get their turn: after some microseconds mostly, and after
// milliseconds if each unit of it waits for memory.
const sliceFuel = 40_000

// Budgets are what one call may spend, in units of fuel. 0 is the limit of the
// engine.
type Budgets struct {
	Command int64 // Handle
	Query   int64
	Event   int64 // Apply, for each event: how a history is cut into batches decides nothing
	Load    int64 // Load, Snapshot and Drop
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

// account is that of the call being made. The guest's own counter
// holds what is left of a slice; the rest of the budget stays here.
type account struct {
	fuel, stack api.MutableGlobal
	budget      int64
	rest        int64 // of the budget, not given to the guest yet
	used        int64 // by the last call
	deadline    time.Time
	long        func() // see Env
	interrupted atomic.Bool
	slices      int  // given in this call
	turn        bool // the call holds one of the engine's turns
	sampling    sampling
}

// A call that goes on for shortCall slices, half a millisecond or so, takes
// turns from then on with the other long ones: there are fewer turns than
// processors, so that one is left for everything else. (Go looks for what has
// come from the network when a processor has nothing to run: with a guest
// running on each, an answer takes 10 ms a hop.) A turn is given back after
// turnSlices and taken again behind whoever waits.
//
// Others that are ready get the processor after yieldSlices, some half a
// millisecond. To yield is to go to the end of Go's global queue, which a busy
// process looks at only now and then: on a machine with more work than
// processors that takes milliseconds, and a collection in a large Go guest, 5,000
// slices, took seconds when it yielded after every 100,000 units.
const (
	shortCall   = 30
	turnSlices  = 60
	yieldSlices = 40
)

// takeTurn waits for a turn when the call is a long one.
func (g *Instance) takeTurn() {
	m := &g.meter
	if m.slices++; m.slices < shortCall {
		return
	}
	if m.slices == shortCall && m.long != nil {
		m.long()
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

// endTurn gives back what takeTurn took.
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
		return errors.New("the module is not metered")
	}
	return nil
}

// open begins a call that may spend budget.
func (m *account) open(budget int64) {
	m.budget, m.rest, m.slices = budget, budget, 0
	m.give()
}

func (m *account) give() {
	slice := m.sampling.slice(min(sliceFuel, m.rest))
	m.rest -= slice
	m.fuel.Set(uint64(slice))
}

// close ends the account.
func (m *account) close() {
	m.used = m.budget - m.rest - int64(m.fuel.Get())
	if m.sampling.profile != nil {
		m.sampling.spend(int64(m.fuel.Get()))
	}
}

// spendBytes charges for bytes that a function of the host reads or writes. The
// guest meets it at its next check.
func (g *Instance) spendBytes(n int) {
	m := &g.meter
	m.fuel.Set(m.fuel.Get() - uint64(n/wasm.BytesPerUnit))
}

// refuel is the function a guest calls when its slice or its stack is spent.
func (g *Instance) refuel() {
	m := &g.meter
	if int64(m.stack.Get()) < 0 {
		panic(exhausted{FaultStack, "the call stack is spent: the guest recurses too deeply"})
	}
	if !g.affordable() {
		panic(errFuel)
	}
	m.rest += int64(m.fuel.Get()) // what it spent beyond its slice
	turned := m.sampling.turned()
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

// errFuel ends a call that spends more than its budget.
var errFuel = exhausted{FaultFuel, "the call's fuel is spent"}

// affordable reports whether the call is within its budget so far.
func (g *Instance) affordable() bool {
	m := &g.meter
	if left := int64(m.fuel.Get()); m.rest+left < 0 {
		g.widen()
		return m.rest+left >= 0
	}
	return true
}

// widen gives an Apply the budget of all its events. They are counted only
// here, where one event's fuel did not do.
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

// exhausted is what refuel panics with to end a call.
type exhausted struct {
	kind FaultKind
	text string
}

func (e exhausted) Error() string { return e.text }

// Fuel is what the last call spent, whether it returned or not. The same calls
// on a new instance spend the same, on every node.
func (g *Instance) Fuel() int64 { return g.meter.used }

// SetBudgets sets what the calls after it may spend.
func (g *Instance) SetBudgets(b Budgets) {
	g.budgets = b.withDefaults(&g.module.engine.limits)
}

// Interrupt makes the call being made, or the next one that spends a slice,
// end with ErrInterrupted. It may be called from any goroutine, until Close.
func (g *Instance) Interrupt() { g.meter.interrupted.Store(true) }

// registerMeter makes the import module of metering in the runtime.
func (e *Engine) registerMeter(ctx context.Context) error {
	refuel := func(ctx context.Context, _ api.Module, _ []uint64) {
		ctx.(*callContext).instance.refuel()
	}
	ctx = experimental.WithFunctionListenerFactory(ctx, sampler{})
	_, err := e.runtime.NewHostModuleBuilder(wasm.ImportModule).NewFunctionBuilder().
		WithGoModuleFunction(api.GoModuleFunc(refuel), nil, nil).Export(wasm.ImportRefuel).Instantiate(ctx)
	return err
}
