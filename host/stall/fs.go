package stall

import "github.com/hostd/hostd/journal/disk"

// FS wraps fsys so that the watch sees every operation that changes something
// or makes it durable. It does not watch reads, because a recovery may read for
// a long time.
func (w *Watch) FS(fsys disk.FS) disk.FS { return &watchedFS{fsys, w} }

// watchedFS reports the start and the end of operations to the watch.
type watchedFS struct {
	disk.FS
	watch *Watch
}

// watchedFile is a file of a watchedFS.
type watchedFile struct {
	disk.File
	watch *Watch
}

func (f *watchedFS) file(open func() (disk.File, error)) (disk.File, error) {
	defer f.watch.begin()()
	file, err := open()
	if err != nil {
		return nil, err
	}
	return &watchedFile{file, f.watch}, nil
}

// OpenFile implements disk.FS.
func (f *watchedFS) OpenFile(name string, access disk.Access) (disk.File, error) {
	return f.file(func() (disk.File, error) { return f.FS.OpenFile(name, access) })
}

// Create implements disk.FS.
func (f *watchedFS) Create(name string, size int64) (disk.File, error) {
	return f.file(func() (disk.File, error) { return f.FS.Create(name, size) })
}

// Rename implements disk.FS.
func (f *watchedFS) Rename(from, to string) error {
	defer f.watch.begin()()
	return f.FS.Rename(from, to)
}

// Remove implements disk.FS.
func (f *watchedFS) Remove(name string) error {
	defer f.watch.begin()()
	return f.FS.Remove(name)
}

// SyncDir implements disk.FS.
func (f *watchedFS) SyncDir(dir string) error {
	defer f.watch.begin()()
	return f.FS.SyncDir(dir)
}

// MkdirAll implements disk.FS.
func (f *watchedFS) MkdirAll(dir string) error {
	defer f.watch.begin()()
	return f.FS.MkdirAll(dir)
}

// WriteAt implements disk.File.
func (f *watchedFile) WriteAt(p []byte, off int64) (int, error) {
	defer f.watch.begin()()
	return f.File.WriteAt(p, off)
}

// Sync implements disk.File.
func (f *watchedFile) Sync() error {
	defer f.watch.begin()()
	return f.File.Sync()
}

// Truncate implements disk.File.
func (f *watchedFile) Truncate(size int64) error {
	defer f.watch.begin()()
	return f.File.Truncate(size)
}

// Close implements disk.File.
func (f *watchedFile) Close() error {
	defer f.watch.begin()()
	return f.File.Close()
}
