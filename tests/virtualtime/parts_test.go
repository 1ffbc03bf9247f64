package virtualtime

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/tests/support/testkit"
)

// guests are the modules of the scenarios, compiled once per process. Every
// node starts with the compiled code in its cache, as after a restart.
var guests = []string{"counter"}

// modules holds the Wasm of the guests by name.
var modules = map[string][]byte{}

var compiled struct {
	once sync.Once
	dir  string // a data directory that contains only the cache and its key
	err  error
}

func buildGuests(t *testing.T) {
	t.Helper()
	compiled.once.Do(func() { compiled.err = compileGuests(t) })
	if compiled.err != nil {
		t.Fatal(compiled.err)
	}
}

func compileGuests(t *testing.T) (err error) {
	compiled.dir, err = os.MkdirTemp("", "hostd-bubble-")
	if err != nil {
		return err
	}
	ctx, limits := context.Background(), abi.DefaultLimits()
	c := config.Default()
	limits.MemoryBytes, limits.ModuleBytes = int(c.InstanceMemoryBytes), int(c.MaxModuleBytes)
	key, err := datadir.OpenCacheKey(compiled.dir)
	if err != nil {
		return err
	}
	e, err := guest.New(ctx, guest.Options{
		Limits: limits, MemoryBytes: int64(c.GuestMemoryBytes), Logger: slog.New(slog.DiscardHandler),
		CacheDir: filepath.Join(compiled.dir, datadir.CacheDir), CacheKey: key,
	})
	if err != nil {
		return err
	}
	defer e.Close(ctx)
	for _, name := range guests {
		wasm := testkit.BuildExample(t, name)
		modules[name] = wasm
		m, err := e.Compile(ctx, journal.Digest(sha256.Sum256(wasm)), wasm)
		if err != nil {
			return err
		}
		if err := m.Close(); err != nil {
			return err
		}
	}
	return nil
}

// warm creates a data directory with a filled cache and the key of its seals.
func warm(t *testing.T, dir string) {
	t.Helper()
	copyDir(t, compiled.dir, dir)
}

// checkWarm checks that the seals of a node's cache are unchanged, so that the
// node has compiled nothing. Under the race detector, compilation would be most
// of its work.
func checkWarm(t *testing.T, dir string) {
	t.Helper()
	seals := filepath.Join(datadir.CacheDir, guest.SealsName)
	want, err := os.ReadFile(filepath.Join(compiled.dir, seals))
	got, err2 := os.ReadFile(filepath.Join(dir, seals))
	if err := errors.Join(err, err2); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s compiled what it had: %v", filepath.Base(dir), err)
	}
}

// copyDir copies a directory to which no process writes. It keeps files sparse,
// because logs and memtables are mostly empty.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		return copyFile(path, filepath.Join(to, rel))
	})
	if err != nil {
		t.Fatalf("copy %s: %v", from, err)
	}
}

const copyBlock = 64 << 10

var zeros [copyBlock]byte

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	block, size := make([]byte, copyBlock), int64(0)
	for {
		n, err := io.ReadFull(in, block)
		if n > 0 && !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := out.WriteAt(block[:n], size); err != nil {
				out.Close()
				return err
			}
		}
		size += int64(n)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			out.Close()
			return err
		}
	}
	if err := out.Truncate(size); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// tailLines is the number of log lines that a failed scenario prints.
const tailLines = 400

// Log messages for which scenarios wait.
const (
	saysDisk    = "the disk of the write-ahead log does not answer"
	saysPutDown = "an operator declared this node down"
	saysLeft    = "this node has left the cluster"
)

// tail keeps the end of the log of all nodes, and records which of these
// messages were logged.
type tail struct {
	mu    sync.Mutex
	lines []string
	had   map[string]bool
}

func (l *tail) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) == tailLines {
		l.lines = append(l.lines[:0], l.lines[tailLines/4:]...)
	}
	l.lines = append(l.lines, string(line))
	for _, text := range []string{saysDisk, saysPutDown, saysLeft} {
		l.had[text] = l.had[text] || strings.Contains(string(line), text)
	}
	if strings.Contains(string(line), "the process ends") {
		fmt.Fprint(os.Stderr, string(line)) // the test runs in the process that ends, so it cannot print the log later
	}
	return len(line), nil
}

// said reports whether a message has been logged, no matter how long ago.
func (l *tail) said(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.had[text]
}

// forget resets the record of a message.
func (l *tail) forget(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.had[text] = false
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "")
}
