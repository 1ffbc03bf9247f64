// Package testkit is what tests of several packages share: the example guests
// as Wasm, the program, nodes as processes, and file systems whose power can
// be cut or which can be filled.
//
// It is imported by tests only, never by the product. A Node waits for its
// process in a goroutine that ends with it.
package testkit

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// buildTimeout is generous: the first build of a machine compiles the
// runtime for Wasm.
const buildTimeout = 5 * time.Minute

type example struct {
	once sync.Once
	wasm []byte
	err  error
	log  string
}

// examples holds what this test process has built, by name.
var examples sync.Map

// BuildExample returns examples/wasm/<name> as a Wasm module, built with the
// toolchain that runs the test, once a process. The toolchain's own cache
// makes the next process quick. Callers must not change the bytes.
func BuildExample(t testing.TB, name string) []byte {
	t.Helper()
	entry, _ := examples.LoadOrStore(name, new(example))
	e := entry.(*example)
	e.once.Do(e.build(name))
	if e.err != nil {
		t.Fatalf("build example %s: %v\n%s", name, e.err, e.log)
	}
	return e.wasm
}

func (e *example) build(name string) func() {
	return func() {
		root, err := repositoryRoot()
		if err != nil {
			e.err = err
			return
		}
		dir, err := os.MkdirTemp("", "hostd-example-")
		if err != nil {
			e.err = err
			return
		}
		defer os.RemoveAll(dir)
		file := filepath.Join(dir, name+".wasm")
		ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
		defer cancel()
		build := exec.CommandContext(ctx, "go", "build",
			"-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", file, "./examples/wasm/"+name)
		build.Dir = root
		build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
		var log bytes.Buffer
		build.Stdout, build.Stderr = &log, &log
		if e.err = build.Run(); e.err != nil {
			e.log = log.String()
			return
		}
		e.wasm, e.err = os.ReadFile(file)
	}
}

// repositoryRoot is the nearest directory above the test's own that has a
// go.mod.
func repositoryRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the test's directory")
		}
		dir = parent
	}
}
