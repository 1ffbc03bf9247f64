package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/guest/wasm"
	"github.com/hostd/hostd/journal"
	"github.com/tetratelabs/wazero"
)

// Module is a compiled module. It is safe for concurrent use.
type Module struct {
	engine      *Engine
	digest      journal.Digest
	compiled    *compiledModule
	manifest    *manifest.Manifest
	description *Description
	logger      *slog.Logger
	logRate     *logRate

	// image is the initial state of instances; nil means none. mutable lists the
	// globals in it.
	image      *image
	restorable bool
	mutable    []uint32
	functions  uint32 // including imports, except those of the meter

	mu     sync.Mutex
	users  int // number of instances, plus one until Close
	closed bool
}

// shortDigest is the number of hex digits of a digest in log lines.
const shortDigest = 12

// Compile admits and compiles a module, and reads its manifest from a temporary
// instance. digest is the SHA-256 of wasm, which the caller has checked. wasm
// is not kept.
//
// One module is compiled at a time. ctx bounds the wait for other compilations
// and the time of the child process, but a compilation in this process cannot
// be stopped. The error is an *AdmissionError if the module is at fault.
// Without a child process, it is a *Fault if the module traps in _initialize or
// hostd_describe.
func (e *Engine) Compile(ctx context.Context, digest journal.Digest, wasm []byte) (*Module, error) {
	parsed, err := admit(wasm, e.limits)
	if err != nil {
		return nil, err
	}
	if err := e.retain(); err != nil {
		return nil, err
	}
	compiled, err := e.compile(ctx, parsed.Prepare())
	if err != nil {
		e.release()
		return nil, err
	}
	m := &Module{
		engine:      e,
		digest:      digest,
		compiled:    compiled,
		description: parsed.Describe(),
		logRate:     &logRate{dropped: &e.logDropped},
		logger:      e.logger.With("module_digest", digest.String()[:shortDigest]),
		restorable:  parsed.Restorable(),
		mutable:     parsed.Mutable,
		functions:   uint32(len(parsed.Imports) + len(parsed.Functions)),
		users:       1,
	}
	if m.manifest, err = m.readManifest(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.logger = m.logger.With("module", m.manifest.Name)
	return m, nil
}

// compile waits for the compilation slot and compiles a prepared module, in the
// child process first if there is one.
func (e *Engine) compile(ctx context.Context, prepared []byte) (*compiledModule, error) {
	select {
	case e.compiling <- struct{}{}:
		defer func() { <-e.compiling }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to compile a module: %w", ctx.Err())
	}
	if e.child != nil && !e.cache.HasPassed(prepared) {
		if err := e.child.Compile(ctx, prepared); err != nil {
			return nil, err
		}
		if err := e.cache.Pass(prepared); err != nil {
			e.logger.Warn("the outcome of a compilation is not recorded; the next start compiles the module again", "error", err)
		}
	}
	compiled, err := e.compileHere(ctx, prepared)
	if err == nil && e.cache != nil {
		if err := e.cache.Record(); err != nil {
			e.logger.Warn("a compiled module is not recorded; the next start compiles it again", "error", err)
		}
	}
	return compiled, err
}

// damagedCachePrefix is the prefix of the runtime's errors about its cache
// files.
const damagedCachePrefix = "compilationcache:"

// compileHere compiles in this process, or loads the module from the cache. If
// the cache is damaged, it clears the cache and compiles again.
func (e *Engine) compileHere(ctx context.Context, prepared []byte) (*compiledModule, error) {
	compiled, err := e.compilePrepared(ctx, prepared)
	if err != nil && e.cache != nil && strings.HasPrefix(err.Error(), damagedCachePrefix) {
		e.logger.Warn("compilation cache is damaged, compiling again", "error", err)
		if err := e.cache.Clear(); err != nil {
			return nil, err
		}
		compiled, err = e.compilePrepared(ctx, prepared)
	}
	if err != nil {
		return nil, compileError(err)
	}
	return compiled, nil
}

// compileError distinguishes a fault of the module from one of the host, such
// as a full disk under the cache.
func compileError(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	if errors.As(err, &path) || errors.As(err, &link) || strings.HasPrefix(err.Error(), damagedCachePrefix) {
		return fmt.Errorf("compilation cache: %w", err)
	}
	text, _ := publicText(err)
	return wasm.Refuse("code", "%s; build it again", text)
}

// compileContained recovers panics of the runtime's validator, which some
// damaged modules cause, so that they do not crash the process.
func (e *Engine) compileContained(ctx context.Context, prepared []byte) (compiled wazero.CompiledModule, err error) {
	defer func() {
		if r := recover(); r != nil {
			compiled, err = nil, errors.New("the code is damaged or too complex for the runtime to validate")
		}
	}()
	return e.runtime.CompileModule(context.WithoutCancel(ctx), prepared)
}

func (m *Module) readManifest(ctx context.Context) (*manifest.Manifest, error) {
	g, err := m.Instantiate(ctx)
	if err != nil {
		return nil, err
	}
	m.takeImage(g)
	text, err := g.describe()
	if err == nil {
		text = bytes.Clone(text)
	}
	if closeErr := g.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, err
	}
	parsed, err := manifest.Parse(text)
	if err != nil {
		return nil, wasm.Refuse("manifest", "%s", strings.TrimPrefix(err.Error(), "manifest: "))
	}
	return parsed, nil
}

// Digest returns the SHA-256 of the module's bytes.
func (m *Module) Digest() journal.Digest { return m.digest }

// Manifest returns the module's manifest. It must not be modified.
func (m *Module) Manifest() *manifest.Manifest { return m.manifest }

// Upcasts reports whether instances of the module implement Upcast.
func (m *Module) Upcasts() bool { return slices.Contains(m.description.Exports, abi.ExportUpcast) }

// Description returns the description of the module from its admission. It must
// not be modified.
func (m *Module) Description() *Description { return m.description }

// Close makes Instantiate fail. The code is freed when the last instance is
// closed. Close may be called twice.
func (m *Module) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	m.mu.Unlock()
	return m.release()
}

func (m *Module) retain() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fmt.Errorf("module: %w", ErrClosed)
	}
	m.users++
	return nil
}

// release drops one user of the module. The last release frees the code.
func (m *Module) release() error {
	m.mu.Lock()
	m.users--
	last := m.users == 0
	m.mu.Unlock()
	if !last {
		return nil
	}
	defer m.engine.release()
	err := m.compiled.Close(context.Background())
	if m.image != nil {
		err = errors.Join(err, m.image.file.close())
	}
	if err != nil {
		return fmt.Errorf("close module: %w", err)
	}
	return nil
}
