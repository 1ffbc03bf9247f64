package guest

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
)

// compilation is a compiled module, or a module that is being compiled by the caller
// that found it missing.
type compilation struct {
	done   chan struct{} // closed when module and err are set
	module *Module
	err    error
}

// Module returns the compiled module, and reads and compiles it first if it is
// not in memory. Concurrent callers for the same module share one compilation
// and its outcome; but if the compiling caller's ctx ends, another caller
// compiles. A failure is not cached. The registry owns the module and keeps it
// in memory until Release or Close.
func (r *Registry) Module(ctx context.Context, digest journal.Digest) (*Module, error) {
	return r.module(ctx, digest, func() ([]byte, error) { return r.Get(digest) })
}

// ModuleOf is Module for bytes that need not be stored.
func (r *Registry) ModuleOf(ctx context.Context, wasm []byte) (*Module, error) {
	return r.module(ctx, DigestOf(wasm), func() ([]byte, error) { return wasm, nil })
}

func (r *Registry) module(ctx context.Context, digest journal.Digest, read func() ([]byte, error)) (*Module, error) {
	for {
		c, mine, err := r.join(digest)
		if err != nil {
			return nil, err
		}
		if mine {
			r.compile(ctx, digest, c, read)
			return c.module, c.err
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for module %s: %w", digest, ctx.Err())
		}
		if c.err == nil || !isAbandoned(c.err) {
			return c.module, c.err
		}
	}
}

// isAbandoned reports whether a compilation failed because its caller's ctx
// ended.
func isAbandoned(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// join returns the compilation of digest. If mine is true, the caller must
// carry it out.
func (r *Registry) join(digest journal.Digest) (c *compilation, mine bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, false, errRegistryClosed
	}
	if c := r.compiled[digest]; c != nil {
		return c, false, nil
	}
	c = &compilation{done: make(chan struct{})}
	r.compiled[digest] = c
	return c, true, nil
}

// compile carries out a compilation and wakes all callers waiting for it.
func (r *Registry) compile(ctx context.Context, digest journal.Digest, c *compilation, read func() ([]byte, error)) {
	defer close(c.done)
	wasm, err := read()
	if err == nil {
		c.module, err = r.engine.Compile(ctx, digest, wasm)
	}
	if err == nil {
		return
	}
	c.err = fmt.Errorf("module %s: %w", digest, err)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.compiled[digest] == c {
		delete(r.compiled, digest)
	}
}

// Release closes a compiled module that no entity type uses any more. Its
// instances continue to work, and keep its code, until they are closed. Its
// file stays. Release does nothing if the module is still being compiled or is
// not in memory.
func (r *Registry) Release(digest journal.Digest) error {
	r.mu.Lock()
	c := r.compiled[digest]
	if c == nil || !c.isFinished() {
		r.mu.Unlock()
		return nil
	}
	delete(r.compiled, digest)
	r.mu.Unlock()
	return c.close()
}

func (c *compilation) isFinished() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *compilation) close() error {
	if c.module == nil {
		return nil
	}
	return c.module.Close()
}

// Close waits for running compilations and closes every compiled module. It
// must be called before the engine's Close.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	open := make([]*compilation, 0, len(r.compiled))
	for _, c := range r.compiled {
		open = append(open, c)
	}
	clear(r.compiled)
	r.mu.Unlock()
	var errs []error
	for _, c := range open {
		<-c.done
		errs = append(errs, c.close())
	}
	return errors.Join(errs...)
}
