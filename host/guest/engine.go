package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Engine compiles modules and holds what their instances share: one runtime,
// the host functions, the compilation cache and the budget of memory.
//
// Modules and instances are closed before their Engine.
type Engine struct {
	limits     abi.Limits
	tellFaults bool
	logger     *slog.Logger
	budget     memoryBudget
	runtime    wazero.Runtime
	cache      *compileCache           // nil without a directory
	files      wazero.CompilationCache // those in it, as the runtime has them

	child *compileChild // nil compiles in this process
	// compiling holds one token: a compilation takes up to hundreds of MiB.
	compiling chan struct{}
	// turns has a token for each long call that runs: see takeTurn.
	turns chan struct{}
	// logDropped counts lines of guests, of all modules.
	logDropped atomic.Uint64

	mu     sync.Mutex
	open   int // modules
	closed bool
}

// New makes an Engine. ctx is used only during the call.
func New(ctx context.Context, opts Options) (*Engine, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("engine options: %w", err)
	}
	e := &Engine{
		limits: opts.Limits, tellFaults: opts.TellFaults,
		logger: opts.Logger,

		compiling: make(chan struct{}, 1),
		turns:     make(chan struct{}, max(1, min(runtime.GOMAXPROCS(0), runtime.NumCPU())-1)),
	}
	e.budget.limit = opts.MemoryBytes
	config := wazero.NewRuntimeConfigCompiler()
	if opts.Interpreter {
		config = wazero.NewRuntimeConfigInterpreter()
	}
	config = config.WithCoreFeatures(api.CoreFeaturesV2).
		WithMemoryLimitPages(uint32(e.limits.MemoryBytes / wasm.PageBytes)).
		WithDebugInfoEnabled(false)
	if opts.CacheDir != "" {
		if err := e.openCache(opts); err != nil {
			return nil, err
		}
		config = config.WithCompilationCache(e.files)
	}
	e.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	if err := errors.Join(e.registerHostFunctions(ctx), e.registerMeter(ctx)); err != nil {
		return nil, fmt.Errorf("register host functions: %w", err)
	}
	return e, nil
}

// openCache opens the directory of compiled modules, and removes what is
// damaged in it before the runtime reads any of it.
func (e *Engine) openCache(opts Options) error {
	cache, err := openCompileCache(opts.CacheDir, opts.CacheKey)
	if err != nil {
		return err
	}
	files, err := wazero.NewCompilationCacheWithDir(opts.CacheDir)
	if err != nil {
		return fmt.Errorf("compilation cache: %w", err)
	}
	e.cache, e.files = cache, files
	if len(opts.CompileCommand) > 0 {
		order := compileOrder{CacheDir: opts.CacheDir, Limits: opts.Limits, CPU: opts.CompileTimeout}
		e.child = newCompileChild(opts.CompileCommand, order, opts.Logger)
	}
	if opts.cacheIsVerified {
		return nil
	}
	damaged, err := cache.Verify()
	if err == nil && damaged > 0 {
		e.logger.Warn("compilation cache is damaged, compiling again", "files", damaged)
	}
	return err
}

// MemoryBytes returns the linear memory of all instances, in bytes as the
// guests see it; pages never made are counted and cost nothing.
func (e *Engine) MemoryBytes() int64 { return e.budget.linear.Load() }

// Limits returns the limits the engine holds modules to.
func (e *Engine) Limits() abi.Limits { return e.limits }

// Close frees the runtime. It returns ErrInUse, and leaves the engine open,
// while a module is open: freeing code that runs would end the process.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	if e.open > 0 {
		return fmt.Errorf("close engine: %d modules: %w", e.open, ErrInUse)
	}
	e.closed = true
	err := e.runtime.Close(ctx)
	if e.cache != nil {
		if cacheErr := e.files.Close(ctx); err == nil {
			err = cacheErr
		}
	}
	if err != nil {
		return fmt.Errorf("close engine: %w", err)
	}
	return nil
}

// retain counts a module that is about to be made.
func (e *Engine) retain() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return fmt.Errorf("engine: %w", ErrClosed)
	}
	e.open++
	return nil
}

func (e *Engine) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open--
}
