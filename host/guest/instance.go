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

// Env is the environment that a guest sees while it handles a command or a
// query.
type Env struct {
	Now  int64  // time in unix nanoseconds
	Seed uint64 // seeds the call's random numbers
	// Deadline, if set, ends the call with ErrDeadline once it has passed, because
	// a caller that stopped waiting needs no answer. It is checked each time a
	// slice of fuel is spent. The guest cannot observe it.
	Deadline time.Time
	// Long is notified once if the call runs long: on the goroutine of the
	// call, once the call has spent fuel worth about half a millisecond. It may
	// be nil.
	Long preempter
}

// preempter lets its executor continue without a call that runs long.
type preempter interface{ Preempt() }

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
	fnUpcast // the first optional function
	functionCount
)

// Instance is one instance of a guest module: a linear memory that holds the
// state of the entities loaded into it, each identified by a handle. It belongs
// to one goroutine.
//
// If a call returns an error other than errInputTooLarge or a FaultOutput, the
// instance is dead: every later call returns ErrInstanceDead, and the owner
// must Close it. A guest that trapped is never called again, because its state
// may be half updated. Every call terminates, because SetBudgets bounds the
// fuel it may spend. Once the instance is warm, no call allocates on the host.
type Instance struct {
	module *Module
	memory *linearMemory
	guest  api.Module
	ctx    *callContext

	// functions are looked up on first use, because each of them has its own
	// native stack of at least 10 KiB.
	functions [functionCount]api.Function
	stack     [3]uint64 // parameters and results of the current call
	dead      bool
	closed    bool

	// The guest's input buffer. Its address stays valid until the guest is asked
	// for another buffer, so the host asks for a buffer only if it needs a
	// larger one.
	buffer      uint32
	bufferBytes int

	// output is a copy of the result of the last call.
	output []byte

	// State that host functions use during the current call.
	deciding  bool  // the guest handles a command or a query
	clock     int64 // time in unix nanoseconds
	random    stream
	system    stream
	hostCalls int
	log       guestLog
	words     lastWords
	meter     account
	budgets   Budgets
	applying  []byte // input of the current Apply

	pureClock int64  // clock while the guest evolves state
	pureSeed  uint64 // seed of the system stream while the guest evolves state
}

// InstanceOptions are the settings of a single instance.
type InstanceOptions struct {
	// MemoryBytes bounds the instance's linear memory, below the engine's limit; 0
	// selects the engine's limit. Beyond it, the guest's memory.grow fails.
	MemoryBytes int64
	// Memory is a second budget that is charged for the instance, in addition to
	// the engine's budget. nil means none.
	Memory *MemoryBudget
	// Budgets bound the calls after _initialize, see SetBudgets.
	Budgets Budgets
	// Lines receives each line that the guest logs or writes to standard output
	// or error, on the goroutine of the call and within the log limits of a
	// call. It must not keep text. nil means no receiver.
	Lines func(level abi.LogLevel, text []byte)
	// About returns the entity that is being called, for the node's log. It runs
	// on the goroutine of the call. The id is empty if no entity is called. If
	// About is nil, log lines name no entity.
	About func() (entityType, id string)

	pureClock int64
	pureSeed  uint64
}

// Instantiate creates an instance and runs the module's _initialize. ctx
// cannot cancel _initialize, but a fuel budget bounds it. The error is a
// *Fault, or wraps errNoMemory or ErrClosed.
func (m *Module) Instantiate(ctx context.Context) (*Instance, error) {
	return m.InstantiateWith(ctx, InstanceOptions{})
}

// InstantiateWith is Instantiate with options. The error can also wrap
// errMemoryLimit.
func (m *Module) InstantiateWith(ctx context.Context, opts InstanceOptions) (*Instance, error) {
	if least := int64(m.description.MemoryMinPages) * wasm.PageBytes; opts.MemoryBytes > 0 && least > opts.MemoryBytes {
		return nil, fmt.Errorf("%w: the module starts with %d bytes, limit %d", errMemoryLimit, least, opts.MemoryBytes)
	}
	if opts.pureClock == 0 {
		opts.pureClock, opts.pureSeed = fixedInstant, fixedSeed
	}
	return m.instantiate(ctx, opts)
}

// WithVariation returns options for an instance that reveals whether a guest is pure.
// While the guest starts and while it evolves state, its clock stands at now,
// in unix nanoseconds, and its random stream uses seed. If a guest's state
// depends on either, for example through map iteration order, replaying the
// same history yields a different snapshot. now must not be 0, because a Go
// guest does not start at that time.
func (o InstanceOptions) WithVariation(now int64, seed uint64) InstanceOptions {
	o.pureClock, o.pureSeed = now, seed
	return o
}

// InstantiateVaried is InstantiateWith with options from WithVariation.
func (m *Module) InstantiateVaried(ctx context.Context, now int64, seed uint64) (*Instance, error) {
	return m.InstantiateWith(ctx, InstanceOptions{}.WithVariation(now, seed))
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

// admitInstance charges both budgets for a new instance, or neither.
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

// leave gives the instance's fixed charge back to the budgets.
func (g *Instance) leave() {
	g.module.engine.budget.leave(g.module.heldBytes())
	if g.memory.own != nil {
		g.memory.own.leave(g.module.heldBytes())
	}
}

// InstanceBytes returns the minimum charge of an instance, in bytes.
func (m *Module) InstanceBytes() int64 {
	return m.heldBytes() + int64(m.description.MemoryMinPages)*wasm.PageBytes
}

// heldBytes returns the bytes an instance holds besides its linear memory.
func (m *Module) heldBytes() int64 { return instanceBytes + m.description.HeldBytes }

// start creates the guest and initializes it, either from the module's image or
// by running _initialize.
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

// open creates the guest without running any of its code.
func (g *Instance) open(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = panicError(abi.ExportInitialize, r)
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

// abandon releases the resources of an instance that failed to start.
func (g *Instance) abandon() error {
	if g.guest != nil {
		return g.Close()
	}
	g.memory.Free()
	g.leave()
	return g.module.release()
}

// panicError converts a panic that passed through the runtime into an error.
func panicError(export string, r any) error {
	err, ok := r.(error)
	if !ok {
		err = fmt.Errorf("%v", r)
	}
	if errors.Is(err, errNoMemory) {
		return err
	}
	return faultOf(export, err)
}

// MemoryBytes returns the size of the guest's linear memory in bytes. Memory
// never shrinks; only Close releases it.
func (g *Instance) MemoryBytes() int64 { return int64(g.memory.length) }

// Module returns the module of the instance.
func (g *Instance) Module() *Module { return g.module }

// Condemn marks the instance dead because its output lies inside memory but
// does not consist of valid frames, and returns the fault. Callers see the text
// of cause.
func (g *Instance) Condemn(export string, cause error) *Fault {
	g.dead = true
	f := &Fault{Kind: FaultFrames, Export: export, Message: wasm.Shorten(cause.Error())}
	g.explain(f)
	return f
}

// Close frees the guest's memory. Slices that calls returned stay valid. Close
// may be called twice.
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
