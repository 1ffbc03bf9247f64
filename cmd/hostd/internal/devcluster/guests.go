package devcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/guestbuild/golang"
)

// modulePath is the Go module that holds the example guests.
const modulePath = "github.com/hostd/hostd"

// FindSource returns the root of a checkout of the source: the given one, the
// checkout that contains the working directory, or the checkout of this
// program.
func FindSource(given string) (string, error) {
	starts := []string{given}
	if given == "" {
		starts = nil
		if wd, err := os.Getwd(); err == nil {
			starts = append(starts, wd)
		}
		if program, err := os.Executable(); err == nil {
			starts = append(starts, filepath.Dir(program))
		}
	}
	for _, dir := range starts {
		for {
			if isSource(dir) {
				return dir, nil
			}
			parent := filepath.Dir(dir)
			if parent == dir || given != "" {
				break
			}
			dir = parent
		}
	}
	if given != "" {
		return "", cli.Usage(fmt.Errorf("%s is not a checkout of %s", given, modulePath))
	}
	return "", cli.Hint(errors.New("the example modules are built from source, but this directory has no source"),
		"Run this in a checkout of "+modulePath+", or set one with --source DIR.")
}

func isSource(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(text), "module "+modulePath+"\n")
}

// BuildGuest builds examples/wasm/NAME of the checkout with the Go toolchain
// and returns the module. The compiler's output goes to talk.
func BuildGuest(ctx context.Context, source, name string, talk io.Writer) ([]byte, error) {
	return BuildModule(ctx, source, "./examples/wasm/"+name, talk)
}

// BuildModule builds a package of the checkout as a module.
func BuildModule(ctx context.Context, source, pkg string, talk io.Writer) ([]byte, error) {
	dir, err := os.MkdirTemp("", "hostd-guest-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "guest.wasm")
	if err := golang.Package(ctx, source, pkg, out, talk); err != nil {
		return nil, fmt.Errorf("%s: %w", pkg, err)
	}
	return cli.ReadModule(out)
}
