package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpenNamesDamagedHeaders: if the header of a file that is not a table is
// damaged, Open fails with an error that names the file and a remedy that
// works.
func TestOpenNamesDamagedHeaders(t *testing.T) {
	for _, pattern := range []string{"*.mem", "*.vlog", "KEYREGISTRY"} {
		t.Run(pattern, func(t *testing.T) {
			live := t.TempDir()
			s := open(t, live, Options{})
			put(t, s, 1, 1, 1, 100)
			dir := filepath.Join(t.TempDir(), "killed")
			if err := os.CopyFS(dir, os.DirFS(live)); err != nil {
				t.Fatal(err)
			}
			closeStore(t, s)
			files, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(files) == 0 {
				t.Fatalf("no %s: %v", pattern, err)
			}
			content, err := os.ReadFile(files[0])
			if err != nil {
				t.Fatal(err)
			}
			content[2] ^= 0x10
			if pattern == "KEYREGISTRY" {
				content[len(content)-1] ^= 0x80
			}
			if err := os.WriteFile(files[0], content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = Open(dir, Options{})
			var damage *DamageError
			if !errors.As(err, &damage) || damage.Where != filepath.Base(files[0]) || strings.Contains(err.Error(), dir) {
				t.Fatalf("got %v, want damage in %s, without its path", err, filepath.Base(files[0]))
			}
			if !strings.Contains(damage.Action, "remove the file") {
				t.Errorf("the action is %q", damage.Action)
			}
			if err := os.Remove(files[0]); err != nil {
				t.Fatal(err)
			}
			closeStore(t, open(t, dir, Options{})) // after the advised remedy, the store opens
		})
	}
}

// TestVerifyDirHoldsTablesToTheLog: like Open, VerifyDir reports an error if
// the tables end before the version recorded in the log.
func TestVerifyDirHoldsTablesToTheLog(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	put(t, s, 1, 1, 1, 100)
	closeStore(t, s)
	r, err := VerifyDir(t.Context(), dir, 20, Options{})
	if err != nil || r.Err() == nil || !strings.Contains(r.Err().Error(), "the log was truncated at 20") {
		t.Errorf("got %v, %v", r, err)
	}
}
