package rust

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

const example = "../../../../../examples/wasm/cart-rust"

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
	builder.ToldMistakes(t, "guest.rs", "", []guests.Mistake{
		{File: "readme.txt", Without: true, Want: "must have one, or src/lib.rs"},
		{File: "guest.rs", Text: "fn broken( {", Want: "guest.rs:1"},
		{File: "hostd-sdk/src/lib.rs", Text: "fn broken( {", Want: "hostd-sdk/src/lib.rs:1"},
	})
}

// Of several compilers, the first that has the standard library of the
// target is used.
func TestCompilerWithoutLibraryIsSkipped(t *testing.T) {
	dir := t.TempDir()
	compiler := func(name, sysroot string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho "+sysroot+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	without, with := compiler("without", dir), compiler("with", filepath.Join(dir, "root"))
	for _, none := range [][]string{{}, {"", filepath.Join(dir, "absent")}, {without}} {
		path, err := find(t.Context(), none)
		if !errors.Is(err, toolchain.ErrMissing) || strings.Contains(err.Error(), target) != (len(none) == 1) {
			t.Errorf("%q: %s, %v", none, path, err)
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "root", "lib", "rustlib", target, "lib"), 0o700); err != nil {
		t.Fatal(err)
	}
	if path, err := find(t.Context(), []string{"", without, with, without}); err != nil || path != with {
		t.Errorf("%s, %v", path, err)
	}
}
