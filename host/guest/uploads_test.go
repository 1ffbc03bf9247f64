package guest

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Files of the compiler that TestMain can run.
const (
	compilerStarts = "starts" // gets one byte for each start
	compilerGate   = "gate"   // the compiler waits for this file
)

// compileAtGate is the compilation of a child process for tests. It counts its
// starts in one file of dir and waits until another file, the gate, exists.
func compileAtGate(dir string) (exitCode int) {
	starts, err := os.OpenFile(filepath.Join(dir, compilerStarts), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = starts.WriteString("x")
		err = errors.Join(err, starts.Close())
	}
	if err != nil {
		os.Stderr.WriteString(err.Error())
		return 1
	}
	for { // the parent limits the time of this process
		if _, err := os.Stat(filepath.Join(dir, compilerGate)); err == nil {
			return CompileChild(os.Stdin, os.Stderr)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestUploadsOfOneDigestCompileOnce checks that concurrent uploads of the same
// bytes start the compiler once and share its result.
func TestUploadsOfOneDigestCompileOnce(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := openCompiling(t, Options{CacheDir: t.TempDir(), CompileCommand: []string{program, "compile-child", dir}})
	wasm := guest(t)
	upload := func() *Module {
		digest, _, err := r.Put(wasm)
		if err != nil {
			t.Error(err)
			return nil
		}
		m, err := r.Module(t.Context(), digest)
		if err != nil {
			t.Error(err)
		}
		return m
	}
	starts := func() int {
		data, err := os.ReadFile(filepath.Join(dir, compilerStarts))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		return len(data)
	}

	modules := make([]*Module, 16)
	var uploads, called sync.WaitGroup
	called.Add(len(modules))
	for i := range modules {
		uploads.Go(func() {
			called.Done()
			modules[i] = upload()
		})
	}
	called.Wait()
	for end := time.Now().Add(time.Minute); starts() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the compiler was not started")
		}
	}
	if err := os.WriteFile(filepath.Join(dir, compilerGate), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	uploads.Wait()
	for _, m := range modules {
		if m == nil || m != modules[0] {
			t.Fatal("the uploads got different modules")
		}
	}
	if got := starts(); got != 1 {
		t.Errorf("%d uploads started the compiler %d times", len(modules), got)
	}

	// A module that was compiled before does not start the compiler again
	// either.
	if err := r.Release(DigestOf(wasm)); err != nil {
		t.Fatal(err)
	}
	if again := upload(); again == nil || again == modules[0] || starts() != 1 {
		t.Errorf("after a release the module is %p, before %p, and the compiler was started %d times", again, modules[0], starts())
	}
}
