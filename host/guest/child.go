package guest

import (
	"context"
	"errors"
	"io"
	"runtime"

	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/tetratelabs/wazero/experimental"
)

// CompileChild must be run by the command in Options.CompileCommand. It
// compiles one module into the cache, tries it and returns the exit code. It
// lowers the resource limits and the priority of its own process.
func CompileChild(in io.Reader, said io.Writer) (exitCode int) {
	return serveCompile(in, said, compileIntoCache)
}

func compileIntoCache(order compileOrder, prepared []byte) error {
	ctx := experimental.WithCompilationWorkers(context.Background(), runtime.GOMAXPROCS(0))
	e, err := New(ctx, Options{Limits: order.Limits, CacheDir: order.CacheDir, cacheIsVerified: true})
	if err != nil {
		return err
	}
	compiled, err := e.compileHere(ctx, prepared)
	if err == nil {
		err = e.tryCompiled(ctx, compiled)
	}
	return errors.Join(err, e.Close(ctx))
}

// tryCompiled runs the trial of a compiled module and closes the module.
func (e *Engine) tryCompiled(ctx context.Context, compiled *compiledModule) error {
	if err := e.retain(); err != nil {
		return err
	}
	m := &Module{engine: e, compiled: compiled, description: &Description{}, logger: e.logger, users: 1}
	var err error
	if m.manifest, err = m.readManifest(ctx); err == nil {
		err = m.try(ctx)
	}
	var fault *Fault
	if errors.As(err, &fault) {
		err = wasm.Refuse("trial", "%s", fault.Error())
	}
	return errors.Join(err, m.Close())
}
