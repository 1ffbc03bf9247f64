package datadir

import (
	"path/filepath"
	"testing"

	"github.com/hostd/hostd/sharding"
)

// A level that could not be written must not be remembered, because other nodes
// would rely on it.
func TestClusterVersionOfDirectoryIsDurable(t *testing.T) {
	id := Identity{Format: sharding.Version1, Node: "n1"}
	r := NewRecord(filepath.Join(t.TempDir(), "gone"), id)
	for range 2 {
		if err := r.SaveLevel(2); err == nil || r.Now().Format != sharding.Version1 {
			t.Fatalf("level %d, %v", r.Now().Format, err)
		}
	}
	dir := t.TempDir()
	r = NewRecord(dir, id)
	if err := r.SaveLevel(2); err != nil {
		t.Fatal(err)
	}
	if err := r.SaveLevel(1); err != nil {
		t.Fatal(err)
	}
	if id, err := ReadIdentity(dir); err != nil || id.Format != 2 {
		t.Errorf("%+v, %v", id, err)
	}
}
