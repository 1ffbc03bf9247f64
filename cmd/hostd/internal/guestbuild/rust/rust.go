// Package rust builds Rust guests with rustc alone: the SDK needs no crate, so
// nothing is fetched. It writes the module and nothing else. The processes that
// it starts end with the call.
package rust

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild/toolchain"
	sdk "github.com/hostd/hostd/guest-sdk/rust"
)

const target = "wasm32-unknown-unknown"

// Build builds the project in a directory as a module, and writes it to the
// file out. Its crate is src/lib.rs, or the only Rust file in the directory.
// The crate hostd is the one in hostd-sdk, or the one embedded in this program.
// The compiler's output goes to log.
func Build(ctx context.Context, dir, out string, log io.Writer) (err error) {
	out, err = filepath.Abs(out)
	if err != nil {
		return err
	}
	source, err := toolchain.Source(dir, ".rs", filepath.Join("src", "lib.rs"))
	if err != nil {
		return err
	}
	rustc, err := find(ctx, candidates())
	if err != nil {
		return err
	}
	scratch, remove, err := toolchain.Scratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	sdkDir, err := toolchain.SDK(dir, scratch, sdk.Sources)
	if err != nil {
		return err
	}
	common := []string{"--edition", "2021", "--target", target, "-C", "opt-level=3", "-C", "panic=abort"}
	library := filepath.Join(scratch, "libhostd.rlib")
	crate := append(common[:len(common):len(common)], "--crate-type", "rlib", "--crate-name", "hostd", "-o", library, filepath.Join(sdkDir, "src", "lib.rs"))
	if err := toolchain.Run(ctx, dir, log, rustc, crate...); err != nil {
		return err
	}
	guest := append(common, "-C", "lto=fat", "-C", "strip=symbols", "--crate-type", "cdylib", "--crate-name", "guest",
		"--extern", "hostd="+library, "-o", out, source)
	var linking toolchain.Tail
	err = toolchain.Run(ctx, dir, io.MultiWriter(log, &linking), rustc, guest...)
	if err != nil && linking.Has("linker `rust-lld` not found") {
		return toolchain.Missing("rust-lld", "Install the linker: on Debian 'apt install lld'; the rustc of rustup includes one.")
	}
	return err
}

// candidates returns the compilers to try, in order: the compiler in RUSTC,
// then the compilers in the path.
func candidates() []string {
	list := []string{os.Getenv("RUSTC")}
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/bin", "/usr/local/bin") {
		list = append(list, filepath.Join(dir, "rustc"))
	}
	return list
}

// find returns the first rustc that has the standard library of the target:
// a machine may have several compilers, of which only some have this
// library.
func find(ctx context.Context, candidates []string) (string, error) {
	found := false
	for _, rustc := range candidates {
		path, err := exec.LookPath(rustc)
		if err != nil {
			continue
		}
		found = true
		sysroot, err := exec.CommandContext(ctx, path, "--print", "sysroot").Output()
		if err != nil {
			continue // this compiler does not run
		}
		library := filepath.Join(strings.TrimSpace(string(sysroot)), "lib", "rustlib", target, "lib")
		if _, err := os.Stat(library); err == nil {
			return path, nil
		}
	}
	if found {
		return "", toolchain.Missing("rustc's library for "+target,
			"Install it: 'rustup target add "+target+"', or on Debian 'apt install libstd-rust-dev-wasm32' with Debian's rustc.")
	}
	return "", toolchain.Missing("rustc", "Install Rust 1.63 or later with its library for "+target+
		": https://rustup.rs and 'rustup target add "+target+"', or on Debian 'apt install rustc libstd-rust-dev-wasm32'.")
}
