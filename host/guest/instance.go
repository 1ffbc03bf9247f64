package guest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// Env is what a guest may know of the world while it handles a command or a
// query.
type Env struct {
	Now  int64  // unix nanoseconds
	Seed uint64 // of the call's random numbers
	// Deadline ends the call with ErrDeadline when it has passed, if it is
	// set: a caller who no longer waits needs no answer. It is looked at when
	// a slice of fuel is spent, and the guest sees nothing of it.
	Deadline time.Time
	// Long, where it is set, is called once, during the call and on its
	// goroutine, when the call has spent what takes about half a millisecond.
	Long func()
}

// guestFunction indexes an instance's functions.
type guestFunction int

const (
	fnABI guestFunction = iota
	fnDescribe
	fnBuffer
	fnLoad
	fnApply
	fnHandle
	fnQuery
	fnSnapshot
	fnDrop
	fnUpcast // the first of those that are optional
	functionCount
)

// Instance is one guest: a linear memory with the state of the entities that
// were loaded into it, by handle. It belongs to one goroutine.
//
// A call that returns a *Fault, or any error but ErrInputTooLarge, leaves the
// instance dead: every later call returns ErrInstanceDead, and the owner must
// Close it. A trapped guest is never called again, because its state may be
// half updated. Every call ends: what it may spend is bounded by SetBudgets.
// No call allocates on the host once the instance is warm.
type Instance struct {
	module *Module
	memory *linearMemory
	guest  api.Module
	ctx    *callContext

	// functions are looked up when first called: each has a native stack of
	// its own of 10 KiB and more.
	functions [functionCount]api.Function
	stack     [3]uint64 // parameters and results of the call being made
	dead      bool
	closed    bool

	// The guest's input buffer: an address stays valid until the guest is
	// asked for another, so it is asked only when a larger one is needed.
	buffer      uint32
	bufferBytes int

	// output is what the last call returned, copied.
	output []byte

	// What host functions may answer during the call being made.
	deciding  bool  // the guest handles a command or query
	clock     int64 // unix nanoseconds
	random    stream
	system    stream
	hostCalls int
	log       guestLog
	words     lastWords
	meter     account
	budgets   Budgets
	applying  []byte // input of the Apply being made

	pureClock int64  // clock while the guest evolves state
	pureSeed  uint64 // of the system stream while the guest evolves state
}

// InstanceOptions are for an instance that differs from others.
type InstanceOptions struct {
	// MemoryBytes bounds its linear memory below the engine's limit; 0 is that
	// limit. A guest sees a memory.grow beyond it fail.
	MemoryBytes int64
	// Memory is a budget that the instance is charged to besides the engine's;
	// nil is none.
	Memory *MemoryBudget
	// Budgets are those of SetBudgets, for the calls after the start.
	Budgets Budgets
	// Lines is told what the guest logs and writes to standard output and error,
	// line by line and on the goroutine of the call, as far as the limits of a
	// call go; it keeps no text. Nil: nobody is.
	Lines func(level abi.LogLevel, text []byte)
	// About names the entity that is called, for the node's log, on the goroutine
	// of the call; the id is empty if no entity is. Nil: the log does not say.
	About func() (entityType, id string)

	pureClock int64
	pureSeed  uint64
}

// Instantiate makes an instance and runs the module's _initialize. ctx is
// not looked at: the module's fuel bounds the start. The error is a *Fault, or
// wraps ErrNoMemory or ErrClosed.
func (m *Module) Instantiate(ctx context.Context) (*Instance, error) {
	return m.InstantiateWith(ctx, InstanceOptions{})
}

// InstantiateWith is Instantiate with options. The error can wrap
// ErrMemoryLimit too.
func (m *Module) InstantiateWith(ctx context.Context, opts InstanceOptions) (*Instance, error) {
	if least := int64(m.description.MemoryMinPages) * wasm.PageBytes; opts.MemoryBytes > 0 && least > opts.MemoryBytes {
		return nil, fmt.Errorf("%w: the module starts with %d bytes, limit %d", ErrMemoryLimit, least, opts.MemoryBytes)
	}
	if opts.pureClock == 0 {
		opts.pureClock, opts.pureSeed = fixedInstant, fixedSeed
	}
	return m.instantiate(ctx, opts)
}

// Varied returns the options for an instance that shows whether a guest is
// pure: while it evolves state, and while it starts, its clock stands at now,
// in unix nanoseconds, and its random stream has the seed given. A guest whose
// state depends on either, through the order of a map for one, shows it by
// another snapshot of the same history. now must not be 0: a Go guest does not
// start then.
func (o InstanceOptions) Varied(now int64, seed uint64) InstanceOptions {
	o.pureClock, o.pureSeed = now, seed
	return o
}

// InstantiateVaried is Instantiate with options that are Varied.
func (m *Module) InstantiateVaried(ctx context.Context, now int64, seed uint64) (*Instance, error) {
	return m.InstantiateWith(ctx, InstanceOptions{}.Varied(now, seed))
}

func (m *Module) instantiate(ctx context.Context, opts InstanceOptions) (*Instance, error) {
	if err := m.retain(); err != nil {
		return nil, err
	}
	var own *memoryBudget
	if opts.Memory != nil {
		own = &opts.Memory.memoryBudget
	}
	if err := m.admitInstance(own); err != nil {
		return nil, errors.Join(err, m.release())
	}
	limits := &m.engine.limits
	g := &Instance{
		module:    m,
		memory:    &linearMemory{budget: &m.engine.budget, own: own, limit: uint64(opts.MemoryBytes)},
		log:       guestLog{logger: m.logger, rate: m.logRate, lineLimit: limits.LogLines, byteLimit: limits.LogLineBytes, hear: opts.Lines, about: opts.About},
		pureClock: opts.pureClock,
		pureSeed:  opts.pureSeed,
	}
	g.SetBudgets(opts.Budgets)
	g.memory.image = m.imageFor(&opts)
	if err := g.start(ctx); err != nil {
		return nil, errors.Join(err, g.abandon())
	}
	return g, nil
}

// admitInstance charges both budgets for a new instance, or none.
func (m *Module) admitInstance(own *memoryBudget) error {
	if own != nil {
		if err := own.admit(m.heldBytes()); err != nil {
			return err
		}
	}
	err := m.engine.budget.admit(m.heldBytes())
	if err != nil && own != nil {
		own.leave(m.heldBytes())
	}
	return err
}

// leave takes the instance off the budgets.
func (g *Instance) leave() {
	g.module.engine.budget.leave(g.module.heldBytes())
	if g.memory.own != nil {
		g.memory.own.leave(g.module.heldBytes())
	}
}

// InstanceBytes is what an instance is charged at its least.
func (m *Module) InstanceBytes() int64 {
	return m.heldBytes() + int64(m.description.MemoryMinPages)*wasm.PageBytes
}

// heldBytes is what an instance holds besides linear memory.
func (m *Module) heldBytes() int64 { return instanceBytes + m.description.HeldBytes }

// start makes the guest and lets it initialize itself, if it does not begin
// with what that would make.
func (g *Instance) start(ctx context.Context) (err error) {
	if err := g.open(ctx); err != nil {
		return err
	}
	if err := g.meter.attach(g.guest); err != nil {
		return err
	}
	if g.memory.image != nil {
		g.restore(g.memory.image)
		return nil
	}
	if err := g.writeData(); err != nil {
		return err
	}
	initialize := g.guest.ExportedFunction(abi.ExportInitialize)
	if initialize == nil {
		return nil
	}
	g.begin()
	return g.run(abi.ExportInitialize, initialize, int64(g.module.engine.limits.StartFuel))
}

// open makes the guest; nothing of it runs.
func (g *Instance) open(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = recovered(abi.ExportInitialize, r)
		}
	}()
	config := wazero.NewModuleConfig().WithName("").WithStartFunctions()
	starting := experimental.WithMemoryAllocator(context.WithoutCancel(ctx), g.memory)
	guest, err := g.module.engine.runtime.InstantiateModule(starting, g.module.compiled.CompiledModule, config)
	if err != nil {
		return faultOf(abi.ExportInitialize, err)
	}
	g.guest = guest
	g.ctx = &callContext{context.Background(), g}
	return nil
}

// abandon gives back what a start that failed has taken.
func (g *Instance) abandon() error {
	if g.guest != nil {
		return g.Close()
	}
	g.memory.Free()
	g.leave()
	return g.module.release()
}

// recovered turns a panic that came through the runtime into an error.
func recovered(export string, r any) error {
	err, ok := r.(error)
	if !ok {
		err = fmt.Errorf("%v", r)
	}
	if errors.Is(err, ErrNoMemory) {
		return err
	}
	return faultOf(export, err)
}

// MemoryBytes returns the size of the guest's linear memory. It never
// shrinks: only closing the instance gives it back.
func (g *Instance) MemoryBytes() int64 { return int64(g.memory.length) }

// Module returns the module this is an instance of.
func (g *Instance) Module() *Module { return g.module }

// Condemn marks the instance dead for output that is well placed but no
// frames of the contract, and returns the fault. cause must be public text.
func (g *Instance) Condemn(export string, cause error) *Fault {
	g.dead = true
	f := &Fault{Kind: FaultFrames, Export: export, Message: wasm.Shorten(cause.Error())}
	g.explain(f)
	return f
}

// Close frees the guest's memory. Slices that calls returned stay valid.
// Closing twice is allowed.
func (g *Instance) Close() error {
	if g.closed {
		return nil
	}
	g.closed, g.dead = true, true
	err := g.guest.Close(context.Background())
	g.memory.Free()
	g.leave()
	g.functions = [functionCount]api.Function{}
	if err := errors.Join(err, g.module.release()); err != nil {
		return fmt.Errorf("close guest instance: %w", err)
	}
	return nil
}
