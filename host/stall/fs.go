package stall

import "github.com/hostd/hostd/journal/disk"

// FS returns fsys with every operation of it watched that changes something or
// makes it durable. What reads is not: a recovery reads for long.
func (w *Watch) FS(fsys disk.FS) disk.FS { return &watchedFS{fsys, w} }

// watchedFS tells the watch when an operation begins and when it has ended.
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
