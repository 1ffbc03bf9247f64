package disk

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
)

// OS is the file system of the operating system. Files are created with mode
// 0600, directories with 0700. Sync is fdatasync on Linux, F_FULLFSYNC on macOS
// and FlushFileBuffers on Windows. Windows cannot sync a directory: SyncDir
// does nothing there, and names are as durable as the file system's journal
// makes them.
type OS struct{}

var _ FS = OS{}

// osFile is a file of the operating system.
type osFile struct {
	*os.File
	opened os.FileInfo
}

// newFile wraps an open file.
func newFile(f *os.File) (File, error) {
	opened, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return osFile{f, opened}, nil
}

// Sync implements File. The operating system syncs an unlinked file without an
// error, although its content is lost when it is closed. Sync therefore checks
// the name after syncing, so that data reported as durable can be found.
func (f osFile) Sync() error {
	if err := syncData(f.File); err != nil {
		return err
	}
	found, err := os.Stat(f.Name())
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(found, f.opened) {
		err = &os.PathError{Op: "sync", Path: f.Name(), Err: ErrGone}
	}
	return err
}

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// OpenFile implements FS.
func (OS) OpenFile(name string, access Access) (File, error) {
	flag := os.O_RDONLY
	if access == ReadWrite {
		flag = os.O_RDWR
	}
	f, err := os.OpenFile(name, flag, 0)
	if err != nil {
		return nil, err
	}
	return newFile(f)
}

// Create implements FS. It allocates the space if the file system supports
// that, so that later writes into it do not run out of space; otherwise it only
// sets the length.
func (OS) Create(name string, size int64) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	if size > 0 {
		if err := allocate(f, size); err != nil {
			f.Close()
			return nil, &os.PathError{Op: "allocate", Path: name, Err: err}
		}
	}
	return newFile(f)
}

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (OS) Remove(name string) error { return os.Remove(name) }

// List implements FS.
func (OS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// SyncDir implements FS.
func (OS) SyncDir(dir string) error { return syncDir(dir) }

// MkdirAll implements FS. It syncs the parent of each directory that it
// creates.
func (o OS) MkdirAll(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := o.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return err
	}
	return syncDir(parent)
}

// Stat implements FS.
func (OS) Stat(name string) (Info, error) {
	info, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	if info.IsDir() {
		return Info{Dir: true}, nil
	}
	return Info{Size: info.Size()}, nil
}

// FreeBytes implements FS.
func (OS) FreeBytes(dir string) (int64, error) {
	free, _, err := Space(dir)
	return int64(min(free, math.MaxInt64)), err
}
