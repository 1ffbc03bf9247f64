package assemblyscript

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild/toolchain"
	"github.com/hostd/hostd/tests/support/guests"
	"github.com/hostd/hostd/tests/support/testkit"
)

const example = "../../../../../examples/wasm/cart-as"

var builder = guests.Builder{Build: Build, Missing: toolchain.ErrMissing}

// withCompiler puts the compiler of the example counter-as in the path.
func withCompiler(t *testing.T) {
	t.Helper()
	bin, err := filepath.Abs("../../../../../examples/wasm/counter-as/node_modules/.bin")
	if err != nil {
		t.Fatal(err)
	}
	path := bin + string(os.PathListSeparator) + os.Getenv("PATH")
	if named := os.Getenv("HOSTD_TEST_ASC"); named != "" {
		path = filepath.Dir(named) + string(os.PathListSeparator) + path
	}
	t.Setenv("PATH", path)
}

func TestCartConforms(t *testing.T) {
	withCompiler(t)
	guests.Conforms(t, builder.Module(t, example))
}

func TestCartsAreEqual(t *testing.T) {
	withCompiler(t)
	cart := builder.Module(t, example)
	guests.CartsAreEqual(t, guests.Compile(t, testkit.BuildExample(t, "cart"), nil), cart)
}

func TestRestOfTheSDK(t *testing.T) {
	withCompiler(t)
	rest := builder.Module(t, "testdata/rest")
	guests.RestsAreEqual(t, guests.Compile(t, testkit.BuildGuest(t, guests.Rest), nil), rest)
}

// A project's own SDK is used, and mistakes are reported with file and line. A
// failed build leaves no module.
func TestBuildErrorsHaveFileAndLine(t *testing.T) {
	withCompiler(t)
	builder.ToldMistakes(t, "guest.ts", "export * from \"hostd-exports\";\n", []guests.Mistake{
		{File: "readme.txt", Without: true, Want: "must have one, or assembly/index.ts"},
		{File: "guest.ts", Text: "function broken( {", Want: "guest.ts(1"},
		{File: "hostd-sdk/assembly/hostd-exports.ts", Text: "function broken( {", Want: "hostd-exports.ts(1"},
	})
}

// The project's compiler takes precedence over a compiler in a directory
// above it, which takes precedence over the compiler in the path.
func TestProjectCompilerTakesPrecedence(t *testing.T) {
	root := t.TempDir()
	dir, bin := filepath.Join(root, "a", "project"), filepath.Join(root, "bin")
	tool := func(path string) string {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("PATH", bin)
	if path, err := find(dir); !errors.Is(err, toolchain.ErrMissing) || !strings.HasPrefix(err.Error(), "node:") {
		t.Errorf("%s, %v", path, err)
	}
	tool(filepath.Join(bin, "node"))
	if path, err := find(dir); !errors.Is(err, toolchain.ErrMissing) || !strings.HasPrefix(err.Error(), "asc:") {
		t.Errorf("%s, %v", path, err)
	}
	for _, at := range []string{bin, filepath.Join(root, "node_modules", ".bin"), filepath.Join(dir, "node_modules", ".bin")} {
		want := tool(filepath.Join(at, "asc"))
		if path, err := find(dir); err != nil || path != want {
			t.Errorf("%s, %v, not %s", path, err, want)
		}
	}
}
