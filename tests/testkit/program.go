package testkit

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

type program struct {
	once sync.Once
	path string
	err  error
}

// programs holds what this test process has built, by build tags.
var programs sync.Map

// Program returns the path of the program, built as users get it, with the
// build tags given, once a process.
func Program(t testing.TB, tags ...string) string {
	t.Helper()
	key := strings.Join(tags, ",")
	entry, _ := programs.LoadOrStore(key, new(program))
	p := entry.(*program)
	p.once.Do(func() { p.path, p.err = buildProgram(key) })
	if p.err != nil {
		t.Fatal(p.err)
	}
	return p.path
}

func buildProgram(tags string) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", err
	}
	name := strings.Trim("hostd-"+strings.ReplaceAll(tags, ",", "-"), "-")
	return builtOnce(name, func(path string) error {
		ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
		defer cancel()
		build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags", tags, "-o", path, "./cmd/hostd")
		build.Dir = root
		if log, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build hostd with the tags %q: %w\n%s", tags, err, log)
		}
		return nil
	})
}
