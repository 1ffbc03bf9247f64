package files_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/host/files"
)

// The file has the new content and mode, whatever was there before, and nothing
// else is left in the directory. A failed replacement changes nothing.
func TestReplace(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "secret")
	if err := os.WriteFile(path, []byte("a longer one"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := files.Replace(path, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	text, about, err := files.Regular(path, 100)
	if err != nil || string(text) != "new" || about.Mode() != 0o600 {
		t.Errorf("%q, %v, %v", text, about, err)
	}
	if err := files.Replace(dir, []byte("new"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("left in the directory: %v, %v", all, err)
	}
}
