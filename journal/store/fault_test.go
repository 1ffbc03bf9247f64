package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestUnreadablePagesAreNamed: truncating a table under an open store makes its
// pages unreadable, like a bad disk. Every read of the store names the table,
// and the process continues.
func TestUnreadablePagesAreNamed(t *testing.T) {
	s, _ := twoVersions(t, 3000)
	v, err := s.ViewAt(2)
	if err != nil {
		t.Fatal(err)
	}
	name := tableNames(t, s)[1] // the table with version 2
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(name, int64(len(whole))/4); err != nil {
		t.Fatal(err)
	}
	nothing := func([]byte) {}
	body := func([]byte) error { return nil }
	pair := func(_, _ []byte) error { return nil }
	reads := map[string]func() error{
		"Get":         func() error { _, err := v.Get(key(1, 2500), body); return err },
		"Scan":        func() error { return v.Scan(key(1, 0)[:prefixBytes], nil, pair) },
		"ScanRaw":     func() error { return v.ScanRaw(pair) },
		"ScanKeys":    func() error { _, err := v.ScanKeys(key(1, 0)[:prefixBytes], nil, 1<<20, nothing); return err },
		"Generations": func() error { _, err := v.Generations(); return err },
		"Cursor": func() error {
			c := v.Cursor(key(1, 0)[:prefixBytes])
			defer c.Close()
			for {
				if key, _, err := c.Next(); key == nil || err != nil {
					return err
				}
			}
		},
		"RollBack": func() error { _, err := s.RollBack(1); return err },
		"newest":   func() error { _, err := v.newest(key(1, 2500)); return err },
	}
	for what, read := range reads {
		var damage *DamageError
		err := read()
		if !errors.As(err, &damage) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if runtime.GOOS == "linux" && damage.Where != filepath.Base(name) {
			t.Errorf("%s: %v, want the table's name", what, err)
		}
	}
	v.Close()
	if err := os.WriteFile(name, whole, 0o600); err != nil { // so that the store can be closed
		t.Fatal(err)
	}
}

// TestUnreadableIndexesAreFatal: Badger reads table indexes under a lock that a
// fault leaves locked, so the process must end, with the table's name.
func TestUnreadableIndexesAreFatal(t *testing.T) {
	const child = "HOSTD_TEST_UNREADABLE_INDEX"
	if os.Getenv(child) == "" {
		again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		again.Env = append(os.Environ(), child+"=1")
		out, err := again.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "fatal: journal store: damage in ") {
			t.Errorf("%v: %s", err, out)
		}
		if runtime.GOOS == "linux" && !strings.Contains(string(out), ".sst: a page cannot be read") {
			t.Errorf("it names no table: %s", out)
		}
		return
	}
	made, _ := twoVersions(t, 100)
	dir := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(dir, os.DirFS(made.Dir())); err != nil {
		t.Fatal(err)
	}
	opts := small
	opts.Fatal = func(err error) {
		fmt.Println("fatal:", err)
		os.Exit(1)
	}
	s := open(t, dir, opts)
	if err := os.Truncate(tableNames(t, s)[0], 0); err != nil {
		t.Fatal(err)
	}
	s.Watermark()
}
