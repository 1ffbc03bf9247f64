// Package disk abstracts the disk of the journal: the file operations that a
// write-ahead log and small durable files need, and one implementation on the
// operating system (OS). It never retries a failed sync, never hides a short
// write and does not interpret the bytes. It starts no goroutine.
package disk

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Access is the access mode of an opened file.
type Access int

const (
	// ReadOnly files reject WriteAt and Truncate.
	ReadOnly Access = iota
	// ReadWrite files allow everything.
	ReadWrite
)

// ErrGone is returned by Sync if the written data cannot be found by the file's
// name, because the file, or a directory above it, was removed or replaced
// after the file was opened. A retry fails too.
var ErrGone = errors.New("the file was removed or replaced while it was in use")

// Info describes a file or a directory.
type Info struct {
	// Size is the length of a file in bytes, zero for a directory.
	Size int64
	// Dir is true for a directory.
	Dir bool
}

// FS is a file system. Names are paths in the form of path/filepath. For a
// missing file, errors.Is(err, fs.ErrNotExist) holds. Creating, renaming and
// removing are durable only after SyncDir of the directory; until then a power
// cut may keep or lose each of them independently.
type FS interface {
	// OpenFile opens an existing file.
	OpenFile(name string, access Access) (File, error)
	// Create creates an empty file, or empties an existing file, and allocates
	// size zero bytes.
	Create(name string, size int64) (File, error)
	// Rename renames a file within its directory and replaces an existing file
	// with the new name.
	Rename(from, to string) error
	// Remove deletes a file.
	Remove(name string) error
	// List returns the names in dir, without their path, sorted.
	List(dir string) ([]string, error)
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	// MkdirAll durably creates dir and its parents. It succeeds if dir exists.
	MkdirAll(dir string) error
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// FreeBytes returns the space that an unprivileged process may still
	// allocate on the file system of dir.
	FreeBytes(dir string) (int64, error)
}

// File is an open file. Its methods may be called concurrently, like those of
// os.File.
type File interface {
	io.ReaderAt
	// WriteAt writes all of p or returns an error. After an error any part of p
	// may have been written.
	io.WriterAt
	// Sync makes everything written to the file durable: its bytes and its
	// length, but not its name. After an error the fate of the data written
	// since the last successful Sync is unknown, and a second call may report
	// success without having written it, so the caller must abandon the file.
	// Sync fails with ErrGone if the file no longer has the name under which it
	// was opened.
	Sync() error
	// Truncate changes the length. A longer file is extended with zeros.
	Truncate(size int64) error
	// Size returns the length in bytes.
	Size() (int64, error)
	// Close releases the file. It does not sync.
	Close() error
}

// WriteFileAtomic replaces the content of file name by data. After a crash at
// any moment the file has either the complete old content or the complete new
// content. When it returns nil the new content is durable. WriteFileAtomic uses
// the temporary file name + ".tmp".
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	temp := name + ".tmp"
	if err := writeFile(fsys, temp, data); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", filepath.Base(temp), err), removeTemp(fsys, temp))
	}
	if err := fsys.Rename(temp, name); err != nil {
		return fmt.Errorf("rename %s: %w", filepath.Base(temp), err)
	}
	return fsys.SyncDir(filepath.Dir(name))
}

func removeTemp(fsys FS, temp string) error {
	if _, err := fsys.Stat(temp); err != nil {
		return nil
	}
	return fsys.Remove(temp)
}

func writeFile(fsys FS, name string, data []byte) (err error) {
	f, err := fsys.Create(name, int64(len(data)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(data, 0); err != nil {
		return err
	}
	return f.Sync()
}

// ReadFile returns the content of a file.
func ReadFile(fsys FS, name string) ([]byte, error) {
	f, err := fsys.OpenFile(name, ReadOnly)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	data := make([]byte, size)
	if n, err := f.ReadAt(data, 0); err != nil && (!errors.Is(err, io.EOF) || int64(n) != size) {
		return nil, err
	}
	return data, nil
}
