// Package golang builds Go guests with the standard toolchain. It writes only
// the module; the toolchain uses its cache. The process that it starts ends
// with the call.
package golang

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// Build builds the package in a directory as a module, and writes it to the
// file out. The compiler's output goes to log.
func Build(ctx context.Context, dir, out string, log io.Writer) error {
	return Package(ctx, dir, ".", out, log)
}

// Package is Build for a package of the Go module in dir, such as
// "./examples/wasm/counter".
func Package(ctx context.Context, dir, pkg, out string, log io.Writer) error {
	if _, err := exec.LookPath("go"); err != nil {
		return cli.Hint(errors.New("the go command is not in the PATH"), "Install Go (https://go.dev/dl) to build modules in Go.")
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-buildmode=c-shared", "-o", out, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build with go: %w", err)
	}
	return nil
}
