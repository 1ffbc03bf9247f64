package guests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/host/guest"
)

// Builder builds guests in one language.
type Builder struct {
	Build   func(ctx context.Context, dir, out string, log io.Writer) error
	Missing error // returned by Build if a tool is not installed

	built sync.Map // modules by directory
}

// buildTimeout is long because the first build on a machine may download or
// compile dependencies.
const buildTimeout = 5 * time.Minute

// Module builds the project in a directory, once per test process, and compiles
// the result. It fails the test if the build prints a warning. It skips the
// test in short mode, or if the compiler is missing.
func (b *Builder) Module(t *testing.T, dir string) *guest.Module {
	t.Helper()
	skipShort(t)
	entry, _ := b.built.LoadOrStore(dir, sync.OnceValues(func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
		defer cancel()
		out := filepath.Join(t.TempDir(), "guest.wasm")
		var log bytes.Buffer
		err := b.Build(ctx, dir, out, &log)
		if err == nil && log.Len() > 0 {
			err = errors.New("the compiler warns")
		}
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, log.String())
		}
		return os.ReadFile(out)
	}))
	wasm, err := entry.(func() ([]byte, error))()
	if errors.Is(err, b.Missing) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return Compile(t, wasm, nil)
}

// skipShort skips a test that runs compilers of other languages in short mode.
// Their output is the same in every mode.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("short: compilers of other languages run in the long mode")
	}
}

// Mistake is a project file with an error.
type Mistake struct {
	File, Text string
	Without    bool   // build the project without its usual source file
	Want       string // text that the error must contain
}

// ToldMistakes builds one project for each mistake. It checks that the build
// reports the mistake and leaves no module behind.
func (b *Builder) ToldMistakes(t *testing.T, name, source string, mistakes []Mistake) {
	t.Helper()
	skipShort(t)
	for _, m := range mistakes {
		dir := t.TempDir()
		files := map[string]string{m.File: m.Text}
		if _, there := files[name]; !there && !m.Without {
			files[name] = source
		}
		for file, text := range files {
			path := filepath.Join(dir, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), buildTimeout)
		defer cancel()
		out := filepath.Join(dir, "guest.wasm")
		var log bytes.Buffer
		err := b.Build(ctx, dir, out, &log)
		if errors.Is(err, b.Missing) {
			t.Skip(err)
		}
		if err == nil || !strings.Contains(err.Error()+log.String(), m.Want) {
			t.Errorf("%s: %v\n%s", m.File, err, log.String())
		}
		if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a failed build has left a module: %v", m.File, err)
		}
	}
}
