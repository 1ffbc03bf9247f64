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

// Engine compiles modules and holds the objects that their instances share: one
// runtime, the host functions, the compilation cache and the memory budget.
//
// All modules and instances must be closed before their Engine.
type Engine struct {
	limits       abi.Limits
	exposeErrors bool
	logger       *slog.Logger
	budget       memoryBudget
	runtime      wazero.Runtime
	cache        *compileCache           // nil without a cache directory
	files        wazero.CompilationCache // the runtime's view of cache

	child *compileChild // if nil, modules are compiled in this process
	// compiling is a semaphore with one slot, because one compilation needs up to
	// hundreds of MiB.
	compiling chan struct{}
	// turns is a semaphore with one slot for each long call that may run at a
	// time, see takeTurn.
	turns chan struct{}
	// logDropped counts the dropped log lines of the guests of all modules.
	logDropped atomic.Uint64

	mu     sync.Mutex
	open   int // number of open modules
	closed bool
}

// New creates an Engine. ctx is used only during the call.
func New(ctx context.Context, opts Options) (*Engine, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("engine options: %w", err)
	}
	e := &Engine{
		limits: opts.Limits, exposeErrors: opts.TellFaults,
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

// openCache opens the compilation cache. Unless another process has just
// verified it, openCache removes damaged and unsealed files before the runtime
// reads any of them.
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

// MemoryBytes returns the size of the linear memory of all instances in bytes,
// as the guests see it. Pages that were never touched count, although they cost
// nothing.
func (e *Engine) MemoryBytes() int64 { return e.budget.linear.Load() }

// Limits returns the limits that modules and their calls must respect.
func (e *Engine) Limits() abi.Limits { return e.limits }

// Close frees the runtime. If a module is still open, it returns errInUse and
// leaves the engine open, because freeing code that is running would crash the
// process.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	if e.open > 0 {
		return fmt.Errorf("close engine: %d modules: %w", e.open, errInUse)
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

// retain counts a module that is about to be created. It returns ErrClosed
// after Close.
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
