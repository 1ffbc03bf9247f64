package testkit

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// scratch is the directory of what this test process builds.
var scratch = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "hostd-test-*") })

// Main runs the tests of a package and removes what this package built for
// them. Packages that start nodes call it from their TestMain:
//
//	func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }
func Main(m *testing.M) int {
	code := m.Run()
	if dir, err := scratch(); err == nil {
		os.RemoveAll(dir)
	}
	return code
}

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
	dir, err := scratch()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, strings.Trim("hostd-"+strings.ReplaceAll(tags, ",", "-"), "-"))
	ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
	defer cancel()
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags", tags, "-o", path, "./cmd/hostd")
	build.Dir = root
	var log bytes.Buffer
	build.Stdout, build.Stderr = &log, &log
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build hostd with the tags %q: %w\n%s", tags, err, log.String())
	}
	return path, nil
}
