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

	// image is what instances begin with, nil for none; mutable are the globals
	// in it.
	image      *image
	restorable bool
	mutable    []uint32
	functions  uint32 // imports too, without those of the meter

	mu     sync.Mutex
	users  int // instances, and one until Close
	closed bool
}

// shortDigest is how many hex digits of a digest stand in log lines.
const shortDigest = 12

// Compile admits and compiles a module, and asks it for its manifest in an
// instance made for that. digest is the name it is known by: the SHA-256 of
// wasm, which the caller has checked. wasm is not kept.
//
// One module is compiled at a time; ctx bounds the wait for that and a child
// process, but a compilation in this process cannot be stopped. The error is
// an *AdmissionError when the module is at fault; without a child process, a
// *Fault when it traps in _initialize or hostd_describe.
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

// compile waits for its turn and compiles a prepared module.
func (e *Engine) compile(ctx context.Context, prepared []byte) (*compiledModule, error) {
	select {
	case e.compiling <- struct{}{}:
		defer func() { <-e.compiling }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to compile a module: %w", ctx.Err())
	}
	if e.child != nil && !e.cache.Passed(prepared) {
		if err := e.child.Compile(ctx, prepared); err != nil {
			return nil, err
		}
		if err := e.cache.Pass(prepared); err != nil {
			e.logger.Warn("a module will be tried again after the next start", "error", err)
		}
	}
	compiled, err := e.compileHere(ctx, prepared)
	if err == nil && e.cache != nil {
		if err := e.cache.Record(); err != nil {
			e.logger.Warn("what was compiled is not recorded and will be compiled again after the next start", "error", err)
		}
	}
	return compiled, err
}

// damagedCachePrefix begins the runtime's errors about its cache files.
const damagedCachePrefix = "compilationcache:"

// compileHere compiles, or takes what is in the cache.
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

// compileError tells a fault of the module from one of the host, such as a
// full disk below the cache.
func compileError(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	if errors.As(err, &path) || errors.As(err, &link) || strings.HasPrefix(err.Error(), damagedCachePrefix) {
		return fmt.Errorf("compilation cache: %w", err)
	}
	text, _ := publicText(err)
	return wasm.Refuse("code", "%s; build it again", text)
}

// compileContained keeps a panic of the runtime's validator, which some
// damaged modules cause, from ending the process.
func (e *Engine) compileContained(ctx context.Context, prepared []byte) (compiled wazero.CompiledModule, err error) {
	defer func() {
		if r := recover(); r != nil {
			compiled, err = nil, errors.New("the code is damaged or beyond what the runtime can check")
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

// Digest returns the name the module was compiled under.
func (m *Module) Digest() journal.Digest { return m.digest }

// Manifest returns what the module says of itself. It must not be modified.
func (m *Module) Manifest() *manifest.Manifest { return m.manifest }

// Upcasts reports that instances of the module may be asked to Upcast.
func (m *Module) Upcasts() bool { return slices.Contains(m.description.Exports, abi.ExportUpcast) }

// Description returns what admission found out. It must not be modified.
func (m *Module) Description() *Description { return m.description }

// Close makes Instantiate fail; the code is freed when the last instance is
// closed. Closing twice is allowed.
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

// release gives one use back; the last frees the code.
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
