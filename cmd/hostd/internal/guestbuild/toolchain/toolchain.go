// Package toolchain is what builders of guests in languages other than Go
// share: the sources of an SDK, the tools of a language, and how they run. The
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

// ErrMissing is what a builder's error wraps where a tool is not installed.
// The error names the tool, and its hint what installs it.
var ErrMissing = errors.New("not installed")

// Missing is the error of a tool that is not there.
func Missing(tool, install string) error {
	return cli.Hint(fmt.Errorf("%s: %w", tool, ErrMissing), install)
}

// sdkDir is where a project has the sources of its SDK.
const sdkDir = "hostd-sdk"

// SDK returns the directory of the SDK's sources: the project's own, where it
// has one, and else a copy of those that this program carries, below scratch.
func SDK(dir, scratch string, carried fs.FS) (string, error) {
	own := filepath.Join(dir, sdkDir)
	switch info, err := os.Stat(own); {
	case err == nil && info.IsDir():
		return filepath.Abs(own)
	case err == nil:
		return "", fmt.Errorf("%s is no directory", own)
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	to := filepath.Join(scratch, sdkDir)
	return to, os.CopyFS(to, carried)
}

// Scratch makes a directory for what a build leaves behind; remove removes it.
func Scratch() (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp("", "hostd-build-*")
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// Source finds the file that a project is compiled from: the first of the
// names that is there, or the one file in the directory with the ending.
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
		return "", fmt.Errorf("%s has %d files *%s: there must be one, or %s", dir, len(found), ending, strings.Join(names, " or "))
	}
	return found[0], nil
}

// afterKill is how long a tool's output is waited for once it was killed: its
// own children may hold it.
const afterKill = 5 * time.Second

// Run runs a tool in a directory and waits for it. What it writes goes to log.
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

// tailBytes is how much of what a tool says is kept.
const tailBytes = 64 << 10

// Tail keeps the end of what a tool says, for a builder to look at.
type Tail struct{ said []byte }

// Write keeps the end of what was written. It takes everything.
func (t *Tail) Write(text []byte) (int, error) {
	t.said = append(t.said, text...)
	if len(t.said) > tailBytes {
		t.said = append(t.said[:0], t.said[len(t.said)-tailBytes:]...)
	}
	return len(text), nil
}

// Has reports whether a text is in what is kept.
func (t *Tail) Has(text string) bool { return bytes.Contains(t.said, []byte(text)) }
