package datadir

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A key is kept, unless the file is missing, truncated or accessible to others;
// then it is replaced.
func TestCacheKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, CacheKeyFile)
	open := func() []byte {
		t.Helper()
		key, err := OpenCacheKey(dir)
		if err != nil || len(key) != cacheKeyBytes {
			t.Fatalf("a key of %d bytes, %v", len(key), err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Fatalf("its file: %v, %v", info, err)
		}
		return key
	}
	key := open()
	if !bytes.Equal(open(), key) {
		t.Error("the key does not stay")
	}
	for what, do := range map[string]func() error{
		"missing":        func() error { return os.Remove(path) },
		"cut off":        func() error { return os.Truncate(path, 5) },
		"open to others": func() error { return os.Chmod(path, 0o644) },
	} {
		before := open()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(open(), before) {
			t.Errorf("a key that is %s is used", what)
		}
	}
}
