package replicas_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// copyStore copies a store that is in use, as it would be if the process were
// killed now.
func copyStore(t *testing.T, from, to string) {
	t.Helper()
	for {
		before, err := os.ReadFile(filepath.Join(from, "MANIFEST"))
		if err == nil {
			err = errors.Join(os.RemoveAll(to), os.MkdirAll(to, 0o700))
		}
		if err != nil {
			t.Fatal(err)
		}
		names, err := os.ReadDir(from)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range names {
			if f.Name() != "LOCK" {
				copyFile(t, filepath.Join(from, f.Name()), filepath.Join(to, f.Name()))
			}
		}
		after, err := os.ReadFile(filepath.Join(from, "MANIFEST"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(before, after) {
			return
		}
	}
}

// copyFile skips blocks of zeros, because most of a memtable's log is a hole.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	f, err2 := os.Create(to)
	if err = errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 64<<10)
	for off := 0; off < len(data); off += len(zeros) {
		if block := data[off:min(off+len(zeros), len(data))]; !bytes.Equal(block, zeros[:len(block)]) {
			if _, err := f.WriteAt(block, int64(off)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(f.Truncate(int64(len(data))), f.Close()); err != nil {
		t.Fatal(err)
	}
}
