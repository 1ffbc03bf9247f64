package guest

import (
	"context"
	"errors"
	"io"
	"runtime"

	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/tetratelabs/wazero/experimental"
)

// CompileChild is what the command named by Options.CompileCommand must run:
// it compiles one module into the cache, tries it and returns the exit code. It lowers
// the limits and the priority of the process it is called in.
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

// tryCompiled gives a module its trial and closes it.
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
