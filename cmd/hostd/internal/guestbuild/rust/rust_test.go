package rust

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild/toolchain"
	"github.com/hostd/hostd/tests/support/guests"
	"github.com/hostd/hostd/tests/support/testkit"
)

const example = "../../../../../examples/wasm/cart-rust"

// build builds a project, once for all tests.
func build(t *testing.T, dir string) []byte {
	t.Helper()
	if err := compiler(t); err != nil {
		t.Skip(err)
	}
	entry, _ := built.LoadOrStore(dir, sync.OnceValues(func() ([]byte, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		out := filepath.Join(t.TempDir(), "guest.wasm")
		var log bytes.Buffer
		err := Build(ctx, dir, out, &log)
		if err == nil && log.Len() > 0 {
			err = errors.New("the compiler warns")
		}
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, log.String())
		}
		return os.ReadFile(out)
	}))
	wasm, err := entry.(func() ([]byte, error))()
	if err != nil {
		t.Fatal(err)
	}
	return wasm
}

var built sync.Map // by directory

// compiler is the error where there is none.
func compiler(t *testing.T) error {
	t.Helper()
	_, err := find(t.Context(), candidates())
	if err != nil && !errors.Is(err, toolchain.ErrMissing) {
		t.Fatal(err)
	}
	return err
}

func TestCartConforms(t *testing.T) { guests.Conforms(t, guests.Compile(t, build(t, example), nil)) }

func TestCartsAreEqual(t *testing.T) {
	cart := guests.Compile(t, build(t, example), nil)
	guests.CartsAreEqual(t, guests.Compile(t, testkit.BuildExample(t, "cart"), nil), cart)
}

func TestRestOfTheSDK(t *testing.T) {
	rest := guests.Compile(t, build(t, "testdata/rest"), nil)
	guests.RestsAreEqual(t, guests.Compile(t, testkit.BuildGuest(t, guests.Rest), nil), rest)
}

// A project's own SDK is used, and mistakes are told by file and line. What
// fails leaves no module.
func TestMistakesAreTold(t *testing.T) {
	if err := compiler(t); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct{ file, text, want string }{
		{"readme.txt", "", "must be one, or src/lib.rs"},
		{"guest.rs", "fn broken( {", "guest.rs:1"},
		{"hostd-sdk/src/lib.rs", "fn broken( {", "hostd-sdk/src/lib.rs:1"},
	} {
		dir := t.TempDir()
		if c.file != "readme.txt" {
			if err := os.WriteFile(filepath.Join(dir, "guest.rs"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(dir, c.file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(c.text), 0o600)); err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(dir, "guest.wasm")
		var log bytes.Buffer
		err := Build(t.Context(), dir, out, &log)
		if err == nil || !strings.Contains(err.Error()+log.String(), c.want) {
			t.Errorf("%s: %v\n%s", c.file, err, log.String())
		}
		if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a failed build has left a module: %v", c.file, err)
		}
	}
}

// Of several compilers the first is taken that has the library.
func TestCompilerWithoutTheLibrary(t *testing.T) {
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
