// Package toolchain is shared by the builders of guests in languages other than
// Go: the sources of an SDK, the tools of a language, and how to run them. The
// processes that it starts end with the call; it starts no goroutine.
package toolchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// ErrMissing is wrapped by a builder's error if a tool is not installed. The
// error names the tool, and its hint says how to install it.
var ErrMissing = errors.New("not installed")

// Missing returns the error for a missing tool.
func Missing(tool, install string) error {
	return cli.Hint(fmt.Errorf("%s: %w", tool, ErrMissing), install)
}

// sdkDir is the directory of the SDK's sources in a project.
const sdkDir = "hostd-sdk"

// SDK returns the directory of the SDK's sources: the project's own
// directory if it exists, otherwise a copy of the embedded sources below
// scratch.
func SDK(dir, scratch string, carried fs.FS) (string, error) {
	own := filepath.Join(dir, sdkDir)
	switch info, err := os.Stat(own); {
	case err == nil && info.IsDir():
		return filepath.Abs(own)
	case err == nil:
		return "", fmt.Errorf("%s is not a directory", own)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	to := filepath.Join(scratch, sdkDir)
	return to, os.CopyFS(to, carried)
}

// Scratch creates a directory for temporary files of a build; remove removes
// it.
func Scratch() (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp("", "hostd-build-*")
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// Source returns the source file of a project: the first of the names that
// exists, or the only file in the directory with the ending.
func Source(dir, ending string, names ...string) (string, error) {
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return name, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var found []string
	for _, e := range entries {
		if !e.IsDir() && strings.HasSuffix(e.Name(), ending) {
			found = append(found, e.Name())
		}
	}
	if len(found) != 1 {
		return "", fmt.Errorf("%s has %d files *%s: it must have one, or %s", dir, len(found), ending, strings.Join(names, " or "))
	}
	return found[0], nil
}

// afterKill is how long to wait for the output of a killed tool, because its
// child processes may keep it open.
const afterKill = 5 * time.Second

// Run runs a tool in a directory and waits for it. Its output goes to log.
func Run(ctx context.Context, dir string, log io.Writer, tool string, args ...string) error {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = dir, log, log, afterKill
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("build with %s: %w", filepath.Base(tool), err)
	}
	return nil
}

// tailBytes is how much of a tool's output is kept.
const tailBytes = 64 << 10

// Tail keeps the end of a tool's output, for a builder to search.
type Tail struct{ said []byte }

// Write keeps the end of the text. It always succeeds.
func (t *Tail) Write(text []byte) (int, error) {
	t.said = append(t.said, text...)
	if len(t.said) > tailBytes {
		t.said = append(t.said[:0], t.said[len(t.said)-tailBytes:]...)
	}
	return len(text), nil
}

// Has reports whether the kept output contains a text.
func (t *Tail) Has(text string) bool { return bytes.Contains(t.said, []byte(text)) }
