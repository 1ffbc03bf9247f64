package testkit

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hostd/hostd/tests/mutants"
)

type program struct {
	once sync.Once
	path string
	err  error
}

// programs caches the programs that this test process has built, by the faults
// planted in them.
var programs sync.Map

// Program returns the path of the program, built once per process, either as
// users get it or with faults planted. A fault is given by the name of its text
// under tests, see package mutants.
func Program(t testing.TB, faults ...string) string {
	t.Helper()
	key := strings.Join(faults, ",")
	entry, _ := programs.LoadOrStore(key, new(program))
	p := entry.(*program)
	p.once.Do(func() { p.path, p.err = buildProgram(faults) })
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.path
}

func buildProgram(faults []string) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	name := "hostd"
	for _, f := range faults {
		name += "-" + strings.TrimSuffix(filepath.Base(f), ".txt")
	}
	return builtOnce(name, func(path string) error {
		dir, err := os.MkdirTemp("", "hostd-planted")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		overlay, err := mutants.Overlay(root, dir, faults...)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
		defer cancel()
		// As in a release: a program that uses the C library would not start in
		// an image without files.
		build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags", "grpcnotrace", "-overlay", overlay, "-o", path, "./cmd/hostd")
		build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if log, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build hostd with the faults %q: %w\n%s", faults, err, log)
		}
		return nil
	})
}
