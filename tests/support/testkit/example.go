// Package testkit is shared by the tests of several packages. It builds the
// example guests and the program, runs nodes as processes, and provides file
// systems that a test can fill or whose power it can cut.
//
// Only tests import it, never the product. A Node waits for its process in a
// goroutine that ends with the process.
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

// buildTimeout is long because the first build on a machine compiles Go's
// runtime for Wasm, and a loaded machine needs minutes to link a program. It is
// below the ten minutes after which the go command ends a test.
const buildTimeout = 9 * time.Minute

type guest struct {
	once sync.Once
	wasm []byte
	err  error
	log  string
}

// guests caches the guests that this test process has built, by package.
var guests sync.Map

// BuildExample returns examples/wasm/<name> as a Wasm module. See BuildGuest
// for examples in Go and BuildSource for other languages.
func BuildExample(t testing.TB, name string) []byte {
	t.Helper()
	if source, ok := foreign[name]; ok {
		return BuildSource(t, source)
	}
	return BuildGuest(t, "examples/wasm/"+name)
}

// BuildGuest compiles the package in dir, relative to the root of the
// repository, to a Wasm module, once per process. The go command's cache makes
// later processes fast. Callers must not modify the bytes.
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

// repositoryRoot returns the nearest parent directory of the test that has a
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
