package disk_test

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/journal/disk/disktest"
)

// TestFileSystemsBehaveAlike makes the same calls on the operating system and
// on the in-memory disk, which must return the same results.
func TestFileSystemsBehaveAlike(t *testing.T) {
	for _, test := range []struct {
		name string
		fs   disk.FS
		root string
	}{{"os", disk.OS{}, t.TempDir()}, {"memory", disktest.NewCrashable(rand.New(rand.NewPCG(1, 0))), "."}} {
		t.Run(test.name, func(t *testing.T) {
			fsys, dir := test.fs, filepath.Join(test.root, "a", "b")
			if err := errors.Join(fsys.MkdirAll(dir), fsys.MkdirAll(dir)); err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(dir, "file")
			for _, missing := range []error{fsys.Rename(name, name+"2"), fsys.Remove(name), second(fsys.Stat(name)),
				second(fsys.OpenFile(name, disk.ReadWrite)), second(fsys.List(name)),
				second(fsys.Create(filepath.Join(dir, "no", "file"), 0))} {
				if !errors.Is(missing, fs.ErrNotExist) {
					t.Errorf("missing file: %v", missing)
				}
			}
			f, err := fsys.Create(name, 10000)
			if err != nil {
				t.Fatal(err)
			}
			if size, err := f.Size(); size != 10000 || err != nil {
				t.Errorf("size %d, %v", size, err)
			}
			if n, err := f.WriteAt([]byte("hello"), 9998); n != 5 || err != nil {
				t.Fatalf("wrote %d, %v", n, err)
			}
			if err := errors.Join(f.Truncate(10001), f.Sync(), f.Close(), fsys.SyncDir(dir)); err != nil {
				t.Fatal(err)
			}
			if err := f.Sync(); !errors.Is(err, fs.ErrClosed) {
				t.Errorf("sync of a closed file: %v", err)
			}
			if err := fsys.Rename(name, name+"2"); err != nil {
				t.Fatal(err)
			}
			if info, err := fsys.Stat(name + "2"); info != (disk.Info{Size: 10001}) || err != nil {
				t.Errorf("%+v, %v", info, err)
			}
			if info, err := fsys.Stat(dir); info != (disk.Info{Dir: true}) || err != nil {
				t.Errorf("%+v, %v", info, err)
			}
			want := append(make([]byte, 9998), "hel"...)
			if data, err := disk.ReadFile(fsys, name+"2"); !bytes.Equal(data, want) || err != nil {
				t.Errorf("%d bytes, %v", len(data), err)
			}
			if err := disk.WriteFileAtomic(fsys, name, []byte("new")); err != nil {
				t.Fatal(err)
			}
			if names, err := fsys.List(dir); !slices.Equal(names, []string{"file", "file2"}) || err != nil {
				t.Errorf("%v, %v", names, err)
			}
			if names, err := fsys.List(filepath.Dir(dir)); !slices.Equal(names, []string{"b"}) || err != nil {
				t.Errorf("%v, %v", names, err)
			}
			if free, err := fsys.FreeBytes(dir); free <= 0 || err != nil {
				t.Errorf("%d free, %v", free, err)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

// TestWriteFileAtomicSurvivesPowerCuts cuts the power during each operation:
// the file has the old or the new content, and the new content once the call
// has returned.
func TestWriteFileAtomicSurvivesPowerCuts(t *testing.T) {
	before, after := bytes.Repeat([]byte("old"), 1000), bytes.Repeat([]byte("brandnew"), 900)
	seen := map[bool]int{}
	for seed := range uint64(400) {
		d := disktest.NewCrashable(rand.New(rand.NewPCG(seed, 9)))
		if err := disk.WriteFileAtomic(d, "file", before); err != nil {
			t.Fatal(err)
		}
		d.CutAfter(int(seed % 9))
		err := disk.WriteFileAtomic(d, "file", after)
		d.Crash()
		data, readErr := disk.ReadFile(d, "file")
		if readErr != nil || !bytes.Equal(data, before) && !bytes.Equal(data, after) {
			t.Fatalf("seed %d: %d bytes, %v", seed, len(data), readErr)
		}
		if err == nil && !bytes.Equal(data, after) {
			t.Fatalf("seed %d: written and lost", seed)
		}
		seen[bytes.Equal(data, after)]++
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("new and old: %v", seen)
	}
}

// TestSyncFailsForRemovedFile: data in a file without a name is not
// durable.
func TestSyncFailsForRemovedFile(t *testing.T) {
	for what, change := range map[string]func(dir, name string) error{
		"removed":             func(_, name string) error { return os.Remove(name) },
		"replaced":            func(_, name string) error { return disk.WriteFileAtomic(disk.OS{}, name, []byte("other")) },
		"directory removed":   func(dir, _ string) error { return os.RemoveAll(dir) },
		"directory moved":     func(dir, _ string) error { return os.Rename(dir, dir+"2") },
		"directory made anew": func(dir, _ string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
	} {
		t.Run(what, func(t *testing.T) {
			if runtime.GOOS == "windows" {
				t.Skip("open files cannot be removed")
			}
			dir := filepath.Join(t.TempDir(), "d")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			name := filepath.Join(dir, "file")
			f, err := disk.OS{}.Create(name, 100)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			if err := change(dir, name); err != nil {
				t.Fatal(err)
			}
			if err := f.Sync(); !errors.Is(err, disk.ErrGone) {
				t.Errorf("sync: %v", err)
			}
		})
	}
}
