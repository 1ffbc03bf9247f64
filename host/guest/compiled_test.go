package guest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/hostd/hostd/journal"
)

func openCompiling(t *testing.T, opts Options) *Registry {
	t.Helper()
	e, err := New(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	r, err := OpenRegistry(RegistryOptions{Dir: t.TempDir(), Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), e.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return r
}

// guest returns a complete guest from the test data: the smallest module that
// satisfies the contract. Its only entity type has no state.
func guest(t *testing.T) []byte {
	t.Helper()
	wasm, err := os.ReadFile(filepath.Join("testdata", "smallest.wasm"))
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

func TestModuleIsCompiledOnce(t *testing.T) {
	r := openCompiling(t, Options{})
	digest := put(t, r, string(guest(t)))
	modules := make([]*Module, 8)
	var group sync.WaitGroup
	for i := range modules {
		group.Go(func() {
			m, err := r.Module(t.Context(), digest)
			if err != nil {
				t.Error(err)
			}
			modules[i] = m
		})
	}
	group.Wait()
	for _, m := range modules {
		if m == nil || m != modules[0] {
			t.Fatal("callers got different modules")
		}
	}
	if modules[0].Manifest().Name != "smallest" || modules[0].Digest() != digest {
		t.Errorf("module is %+v, %v", modules[0].Manifest(), modules[0].Digest())
	}
}

func TestReleasedModuleServesItsInstances(t *testing.T) {
	r := openCompiling(t, Options{})
	digest := put(t, r, string(guest(t)))
	m, err := r.Module(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Instantiate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Release(digest); err != nil {
		t.Fatal(err)
	}
	if err := g.Drop(0); err != nil {
		t.Errorf("the instance of a released module: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if again, err := r.Module(t.Context(), digest); err != nil || again == m {
		t.Errorf("after release: %v, %v", again == m, err)
	}
	if err := r.Release(DigestOf(nil)); err != nil {
		t.Errorf("release of what is not there: %v", err)
	}
}

// TestModuleIsCompiledBeforeItIsStored checks that compiling the bytes of an
// upload stores no file, and that the module is compiled only once.
func TestModuleIsCompiledBeforeItIsStored(t *testing.T) {
	r := openCompiling(t, Options{})
	wasm := guest(t)
	m, err := r.ModuleOf(t.Context(), wasm)
	if err != nil || r.Has(DigestOf(wasm)) {
		t.Fatalf("compiled: %v, stored: %v", err, r.Has(DigestOf(wasm)))
	}
	if stored, err := r.Module(t.Context(), put(t, r, string(wasm))); err != nil || stored != m {
		t.Errorf("stored: the same %v, %v", stored == m, err)
	}
}

func TestFailedCompilationIsRetried(t *testing.T) {
	r := openCompiling(t, Options{})
	wasm := guest(t)
	if _, err := r.Module(t.Context(), DigestOf(wasm)); !errors.Is(err, ErrModuleNotFound) {
		t.Errorf("absent: %v", err)
	}
	put(t, r, string(wasm))
	if _, err := r.Module(t.Context(), DigestOf(wasm)); err != nil {
		t.Errorf("after put: %v", err)
	}
	refused := put(t, r, "not wasm")
	for range 2 {
		var admission *AdmissionError
		if _, err := r.Module(t.Context(), refused); !errors.As(err, &admission) {
			t.Errorf("refused: %v", err)
		}
	}
}

// TestWaiterContinuesAbandonedCompilation checks that if the caller that
// compiles gives up, the next caller compiles instead of failing too.
func TestWaiterContinuesAbandonedCompilation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Registry{compiled: map[journal.Digest]*compilation{}, dir: t.TempDir()}
		digest := DigestOf([]byte("x"))
		first, mine, err := r.join(digest)
		if err != nil || !mine {
			t.Fatal(mine, err)
		}
		outcome := make(chan error)
		go func() { _, err := r.Module(context.Background(), digest); outcome <- err }()
		gaveUp, cancel := context.WithCancel(context.Background())
		impatient := make(chan error)
		go func() { _, err := r.Module(gaveUp, digest); impatient <- err }()
		synctest.Wait()
		cancel()
		if err := <-impatient; !errors.Is(err, context.Canceled) {
			t.Errorf("a waiter who gave up got %v", err)
		}
		first.err = context.DeadlineExceeded
		r.mu.Lock()
		delete(r.compiled, digest)
		r.mu.Unlock()
		close(first.done)
		if err := <-outcome; !errors.Is(err, ErrModuleNotFound) { // the error comes from an attempt of its own
			t.Errorf("the waiter got %v", err)
		}
	})
}

func TestClosedRegistry(t *testing.T) {
	r := openCompiling(t, Options{})
	digest := put(t, r, string(guest(t)))
	m, err := r.Module(t.Context(), digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Instantiate(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("instantiate: %v", err)
	}
	if _, err := r.Module(t.Context(), digest); !errors.Is(err, errRegistryClosed) {
		t.Errorf("module: %v", err)
	}
}
