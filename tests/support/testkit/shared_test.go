package testkit

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestRunDirectoryIsRemovedByLastProcess checks that processes that hold a run
// share its directory, that the last process removes it, and that files of a
// killed run are not reused.
func TestRunDirectoryIsRemovedByLastProcess(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	stale := filepath.Join(dir, "stale")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(stale, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	first, second := &run{dir: dir}, &run{dir: dir}
	join := func(r *run) {
		t.Helper()
		if joined, err := r.join(); !joined || err != nil {
			t.Fatalf("joined: %v, %v", joined, err)
		}
	}
	join(first)
	if _, err := os.Stat(stale); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what an earlier run left behind: %v", err)
	}
	built := filepath.Join(dir, "built")
	if err := os.WriteFile(built, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	join(second)
	first.leave()
	if _, err := os.Stat(built); err != nil {
		t.Errorf("what one has built is gone for the other: %v", err)
	}
	second.leave()
	for _, path := range []string{dir, dir + ".lock"} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s after the last has left: %v", filepath.Base(path), err)
		}
	}
}
