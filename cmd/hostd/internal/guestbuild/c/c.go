// Package c builds C guests with clang and its linker for wasm32. The SDK is
// one header and needs no C library, so nothing is fetched. It writes the
// module and nothing else. The processes that it starts end with the call.
package c

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild/toolchain"
	sdk "github.com/hostd/hostd/guest-sdk/c"
)

// flags are the flags for every guest. The stack is placed first in memory, so
// that a stack overflow traps instead of overwriting data.
var flags = []string{
	"--target=wasm32", "-std=c11", "-O2", "-ffreestanding", "-nostdlib", "-fno-builtin", "-mbulk-memory", "-Wall",
	"-Wl,--no-entry", "-Wl,--strip-all", "-Wl,--stack-first", "-Wl,-z,stack-size=262144",
}

// Build builds the project in a directory as a module, and writes it to the
// file out. Its source is main.c, or the only C file in the directory. The SDK
// is the one in hostd-sdk, or the one embedded in this program. The compiler's
// output goes to log.
func Build(ctx context.Context, dir, out string, log io.Writer) (err error) {
	out, err = filepath.Abs(out)
	if err != nil {
		return err
	}
	source, err := toolchain.Source(dir, ".c", "main.c")
	if err != nil {
		return err
	}
	clang, err := find(os.Getenv("CC"))
	if err != nil {
		return err
	}
	scratch, remove, err := toolchain.Scratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	include, err := toolchain.SDK(dir, scratch, sdk.Sources)
	if err != nil {
		return err
	}
	args := append(flags[:len(flags):len(flags)], "-isystem", include, "-I", ".", "-o", out, source)
	return toolchain.Run(ctx, dir, log, clang, args...)
}

// find returns the named compiler if it is clang, and otherwise the compiler
// in the path. Its linker must be installed too.
func find(named string) (string, error) {
	clang := "clang"
	if base := filepath.Base(named); len(base) >= len(clang) && base[:len(clang)] == clang {
		clang = named
	}
	path, err := exec.LookPath(clang)
	if err != nil {
		return "", toolchain.Missing("clang", "Install clang and lld: on Debian 'apt install clang lld'.")
	}
	linker := filepath.Join(filepath.Dir(path), "wasm-ld")
	if _, err := exec.LookPath(linker); err == nil {
		return path, nil
	}
	if _, err := exec.LookPath("wasm-ld"); err != nil {
		return "", toolchain.Missing("wasm-ld", "Install lld, clang's linker for WebAssembly: on Debian 'apt install lld'.")
	}
	return path, nil
}
