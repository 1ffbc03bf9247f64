package store

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// TestKilledStoresWithLargerMemtablesOpen: the memtable logs of a killed store
// with twice the memtable size fit, even after Badger truncated them to their
// content.
func TestKilledStoresWithLargerMemtablesOpen(t *testing.T) {
	s := open(t, t.TempDir(), Options{MemTableBytes: 16 << 20})
	defer s.Close()
	const keys = 13 << 10
	key := func(b *Batch, n uint64) []byte {
		return binary.BigEndian.AppendUint64(AppendPrefix(b.Key(), 1, 1, ClassOrder), n)
	}
	var b Batch
	for version := range uint64(keys / 1024) {
		b.Reset()
		for n := range uint64(1024) {
			b.Put(key(&b, version*1024+n), make([]byte, 1<<10))
		}
		if err := s.Write(&b, version+1); err != nil {
			t.Fatal(err)
		}
	}
	for _, replayed := range []bool{false, true} { // killed again after a replay
		copied := filepath.Join(t.TempDir(), "store")
		if err := os.CopyFS(copied, os.DirFS(s.Dir())); err != nil {
			t.Fatal(err)
		}
		logs, err := filepath.Glob(filepath.Join(copied, "*.mem"))
		if err != nil || len(logs) != 1 {
			t.Fatal(logs, err)
		}
		if replayed {
			if err := os.Truncate(logs[0], 14<<20); err != nil {
				t.Fatal(err)
			}
		}
		again := open(t, copied, Options{})
		defer again.Close()
		view, err := again.ViewAt(again.MaxVersion())
		if err != nil {
			t.Fatal(err)
		}
		defer view.Close()
		for _, n := range []uint64{0, keys - 1} {
			if found, err := view.Get(key(&b, n), func([]byte) error { return nil }); err != nil || !found {
				t.Errorf("replayed %t: key %d: %v, %v", replayed, n, found, err)
			}
		}
	}
}

func TestFitMemtables(t *testing.T) {
	for _, tt := range []struct{ log, want int64 }{
		{0, 8}, {4, 8}, {5, 16}, {15, 32}, {16, 8}, {32, 16}, {3 << 10, 1 << 10},
	} {
		dir := t.TempDir()
		f, err := os.Create(filepath.Join(dir, "00001.mem"))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(tt.log << 20); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if got, err := fitMemtables(dir, 8<<20); got != tt.want<<20 || err != nil {
			t.Errorf("a log of %d MiB: %d MiB, %v, want %d", tt.log, got>>20, err, tt.want)
		}
	}
}
