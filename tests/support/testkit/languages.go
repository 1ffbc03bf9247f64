package testkit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// foreign are the examples in languages other than Go.
var foreign = map[string]string{
	"counter-c":    "examples/wasm/counter-c/counter.c",
	"counter-rust": "examples/wasm/counter-rust/counter.rs",
	"counter-as":   "examples/wasm/counter-as/counter.ts",
	"counter-ts":   "examples/wasm/counter-ts",
	"cart-ts":      "examples/wasm/cart-ts",
	"booking":      "examples/wasm/booking",
}

// errNoCompiler is returned if the compiler of a language, or its support for
// wasm32, is not installed.
var errNoCompiler = errors.New("not installed")

// sources caches the modules that this test process has compiled, by file.
var sources sync.Map

// BuildSource compiles a file in C, Rust or AssemblyScript, or a project that
// hostd builds, to a Wasm module, as the READMEs of the examples describe. The
// path is relative to the root of the repository. BuildSource compiles each
// source once per process. It skips the test if the compiler is missing. The
// compilers come from the Debian packages clang and lld, and rustc with
// libstd-rust-dev-wasm32. `npm ci` in examples/wasm/counter-as installs asc, or
// HOSTD_TEST_ASC names it. `npm ci` in a project's directory installs the
// project's dependencies. Callers must not modify the bytes.
func BuildSource(t testing.TB, source string) []byte {
	t.Helper()
	entry, _ := sources.LoadOrStore(source, new(guest))
	g := entry.(*guest)
	g.once.Do(func() { g.err = g.compile(source) })
	if errors.Is(g.err, errNoCompiler) {
		t.Skipf("%v\n%s", g.err, g.log)
	}
	if g.err != nil {
		t.Fatalf("compile %s: %v\n%s", source, g.err, g.log)
	}
	return g.wasm
}

func (g *guest) compile(source string) error {
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	file, err := builtOnce("guest-"+strings.ReplaceAll(source, "/", "-")+".wasm", func(path string) error {
		args, err := compiler(root, source, path)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), buildTimeout)
		defer cancel()
		build := exec.CommandContext(ctx, args[0], args[1:]...)
		build.Dir = root
		log, err := build.CombinedOutput()
		g.log = string(log)
		if err != nil && strings.Contains(g.log, "target may not be installed") {
			return fmt.Errorf("rustc's library for wasm32: %w", errNoCompiler)
		}
		return err
	})
	if err != nil {
		return err
	}
	g.wasm, err = os.ReadFile(file)
	return err
}

// compiler returns the command that compiles a source to out.
func compiler(root, source, out string) ([]string, error) {
	switch filepath.Ext(source) {
	case "": // the source is the directory of a project
		if _, err := os.Stat(filepath.Join(root, source, "node_modules")); err != nil {
			return nil, fmt.Errorf("what %s takes of npm: npm ci: %w", source, errNoCompiler)
		}
		program, err := buildProgram(nil)
		return []string{program, "build", source, "-o", out}, err
	case ".c":
		if _, err := installed("wasm-ld"); err != nil {
			return nil, err
		}
		clang, err := installed("clang")
		return []string{clang, "--target=wasm32", "-O2", "-nostdlib", "-fno-builtin", "-Wl,--no-entry", "-Wl,--strip-all", "-o", out, source}, err
	case ".rs":
		// Debian's rustc comes first because it has the library for wasm32.
		rustc, err := installed("/usr/bin/rustc", "rustc")
		return []string{rustc, "--edition", "2021", "--target", "wasm32-unknown-unknown", "-C", "opt-level=3", "-C", "panic=abort",
			"-C", "lto=fat", "-C", "strip=symbols", "--crate-type", "cdylib", "-o", out, source}, err
	case ".ts":
		asc, err := installed(os.Getenv("HOSTD_TEST_ASC"), filepath.Join(root, "examples/wasm/counter-as/node_modules/.bin/asc"))
		return []string{asc, source, "-O3", "--runtime", "incremental", "--noAssert", "--use", "abort=", "--exportStart", "_initialize", "-o", out}, err
	}
	return nil, fmt.Errorf("no compiler for %s", source)
}

// installed returns the path of the first program that is installed.
func installed(programs ...string) (path string, err error) {
	for _, program := range programs {
		if path, err = exec.LookPath(program); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", filepath.Base(programs[len(programs)-1]), errNoCompiler)
}
