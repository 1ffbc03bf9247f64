package c

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

const example = "../../../../../examples/wasm/cart-c"

var builder = guests.Builder{Build: Build, Missing: toolchain.ErrMissing}

func TestCartConforms(t *testing.T) { guests.Conforms(t, builder.Module(t, example)) }

func TestCartsAreEqual(t *testing.T) {
	cart := builder.Module(t, example)
	guests.CartsAreEqual(t, guests.Compile(t, testkit.BuildExample(t, "cart"), nil), cart)
}

func TestRestOfTheSDK(t *testing.T) {
	rest := builder.Module(t, "testdata/rest")
	guests.RestsAreEqual(t, guests.Compile(t, testkit.BuildGuest(t, guests.Rest), nil), rest)
}

// A project's own SDK is used, and mistakes are reported with file and line. A
// failed build leaves no module.
func TestBuildErrorsHaveFileAndLine(t *testing.T) {
	builder.ToldMistakes(t, "guest.c", "#include \"hostd.h\"\n", []guests.Mistake{
		{File: "readme.txt", Without: true, Want: "must have one, or main.c"},
		{File: "guest.c", Text: "int broken( {", Want: "guest.c:1"},
		{File: "hostd-sdk/hostd.h", Text: "int broken( {", Want: "hostd-sdk/hostd.h:1"},
	})
}

func TestMissingToolsAreNamed(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	tool := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	named := func(cc, missing, want string) {
		t.Helper()
		path, err := find(cc)
		if missing == "" && (err != nil || path != filepath.Join(dir, want)) || missing != "" && (!errors.Is(err, toolchain.ErrMissing) || !strings.HasPrefix(err.Error(), missing)) {
			t.Errorf("%q: %s, %v", cc, path, err)
		}
	}
	named("", "clang:", "")
	tool("clang")
	named("gcc", "wasm-ld:", "")
	tool("wasm-ld")
	named("gcc", "", "clang")
	tool("clang-14")
	named(filepath.Join(dir, "clang-14"), "", "clang-14")
}
