package guest

import (
	"context"
	"errors"
	"fmt"

	"github.com/hostd/hostd/journal"
)

// compilation is a module compiled, or being compiled by the caller that
// found it absent.
type compilation struct {
	done   chan struct{} // closed when module and err are set
	module *Module
	err    error
}

// Module returns the compiled module, reading and compiling it when it is not
// in memory. Callers who want the same module at once share one compilation,
// and its outcome, except that one whose own ctx ended does not decide for the
// others. A failure is not remembered. The module stays the registry's: it is
// in memory until Release or Close.
func (r *Registry) Module(ctx context.Context, digest journal.Digest) (*Module, error) {
	for {
		c, mine, err := r.join(digest)
		if err != nil {
			return nil, err
		}
		if mine {
			r.compile(ctx, digest, c)
			return c.module, c.err
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for module %s: %w", digest, ctx.Err())
		}
		if c.err == nil || !abandoned(c.err) {
			return c.module, c.err
		}
	}
}

// abandoned reports whether a compilation failed for its caller's reasons.
func abandoned(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// join returns the compilation of digest; mine is true when the caller must
// carry it out.
func (r *Registry) join(digest journal.Digest) (c *compilation, mine bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, false, ErrRegistryClosed
	}
	if c := r.compiled[digest]; c != nil {
		return c, false, nil
	}
	c = &compilation{done: make(chan struct{})}
	r.compiled[digest] = c
	return c, true, nil
}

// compile carries a compilation out and tells everyone who waits for it.
func (r *Registry) compile(ctx context.Context, digest journal.Digest, c *compilation) {
	defer close(c.done)
	wasm, err := r.Get(digest)
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

// Release closes a compiled module that no entity type is bound to any more.
// Its instances go on, and hold its code, until they are closed; its file
// stays. A module that is being compiled, or is not in memory, is left alone.
func (r *Registry) Release(digest journal.Digest) error {
	r.mu.Lock()
	c := r.compiled[digest]
	if c == nil || !c.finished() {
		r.mu.Unlock()
		return nil
	}
	delete(r.compiled, digest)
	r.mu.Unlock()
	return c.close()
}

func (c *compilation) finished() bool {
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

// Close waits for compilations under way and closes every compiled module.
// It must come before the engine's Close.
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
