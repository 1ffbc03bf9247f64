// Package testkit is what tests of several packages share: the example guests
// as Wasm, the program, nodes as processes, and file systems whose power can
// be cut or which can be filled.
//
// It is imported by tests only, never by the product. A Node waits for its
// process in a goroutine that ends with it.
package testkit

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// buildTimeout is generous: the first build of a machine compiles the
// runtime for Wasm.
const buildTimeout = 5 * time.Minute

type guest struct {
	once sync.Once
	wasm []byte
	err  error
	log  string
}

// guests holds what this test process has built, by package.
var guests sync.Map

// BuildExample returns examples/wasm/<name> as a Wasm module. See BuildGuest,
// and BuildSource for those in other languages than Go.
func BuildExample(t testing.TB, name string) []byte {
	t.Helper()
	if source, ok := foreign[name]; ok {
		return BuildSource(t, source)
	}
	return BuildGuest(t, "examples/wasm/"+name)
}

// BuildGuest returns the package in dir, relative to the repository's root,
// as a Wasm module, built with the toolchain in the path, once a process. The
// toolchain's own cache makes the next process quick. Callers must not change
// the bytes.
func BuildGuest(t testing.TB, dir string) []byte {
	t.Helper()
	entry, _ := guests.LoadOrStore(dir, new(guest))
	g := entry.(*guest)
	g.once.Do(func() { g.err = g.build(dir) })
	if g.err != nil {
		t.Fatalf("build guest %s: %v\n%s", dir, g.err, g.log)
	}
	return g.wasm
}

func (g *guest) build(dir string) error {
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	file, err := builtOnce("guest-"+strings.ReplaceAll(dir, "/", "-")+".wasm", func(path string) error {
		ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
		defer cancel()
		build := exec.CommandContext(ctx, "go", "build",
			"-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", path, "./"+dir)
		build.Dir = root
		build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
		log, err := build.CombinedOutput()
		g.log = string(log)
		return err
	})
	if err != nil {
		return err
	}
	g.wasm, err = os.ReadFile(file)
	return err
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
