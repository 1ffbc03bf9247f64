// Package assemblyscript builds AssemblyScript guests with asc, which npm
// installs into a project. It writes the module and nothing else. The processes
// that it starts end with the call.
package assemblyscript

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"path/filepath"

	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild/toolchain"
	sdk "github.com/hostd/hostd/guest-sdk/assemblyscript"
)

// Build builds the project in a directory as a module, and writes it to the
// file out. Its entry is assembly/index.ts, or the only *.ts file in the
// directory. The SDK is the one in hostd-sdk, or the one embedded in this
// program. The compiler's output goes to log.
func Build(ctx context.Context, dir, out string, log io.Writer) (err error) {
	out, err = filepath.Abs(out)
	if err != nil {
		return err
	}
	source, err := toolchain.Source(dir, ".ts", filepath.Join("assembly", "index.ts"))
	if err != nil {
		return err
	}
	asc, err := find(dir)
	if err != nil {
		return err
	}
	scratch, remove, err := toolchain.Scratch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	library, err := toolchain.SDK(dir, scratch, sdk.Sources)
	if err != nil {
		return err
	}
	// asc writes its output relative to its working directory; --exportStart
	// exports the start function as _initialize.
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	to, err := filepath.Rel(abs, out)
	if err != nil {
		return err
	}
	if library, err = filepath.Rel(abs, filepath.Join(library, "assembly")); err != nil {
		return err
	}
	return toolchain.Run(ctx, dir, log, asc, filepath.ToSlash(source), "-O3", "--runtime", "incremental", "--lib", library,
		"--use", "abort=~lib/hostd/hostdAbort", "--exportStart", "_initialize", "-o", to)
}

// find returns the compiler as npm resolves it: in the project or in a
// directory above it, and then in the path. It runs on node.
func find(dir string) (string, error) {
	if _, err := exec.LookPath("node"); err != nil {
		return "", toolchain.Missing("node", "Install Node.js 20 or later (https://nodejs.org): asc, the compiler of AssemblyScript, runs on it.")
	}
	at, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for {
		if asc, err := exec.LookPath(filepath.Join(at, "node_modules", ".bin", "asc")); err == nil {
			return asc, nil
		}
		if filepath.Dir(at) == at {
			break
		}
		at = filepath.Dir(at)
	}
	asc, err := exec.LookPath("asc")
	if err != nil {
		return "", toolchain.Missing("asc", "Install the compiler of AssemblyScript: 'npm install' in the project, or 'npm install assemblyscript@0.28'.")
	}
	return filepath.Abs(asc)
}
