package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"

	"github.com/hostd/hostd/journal/disk"
)

// tableFile is a table read whole from its file into memory of its own: what
// Badger has of it is a mapping, where a page that cannot be read is a fault
// and a bad block merely the end of an iterator. It serves one goroutine.
type tableFile struct {
	name string
	*table.Table
}

// Badger's marks of an entry in a table.
const (
	entryDeleted = 1 << 0
	entryPointer = 1 << 1 // its value is in the value log
)

// reading is how a table is read. The zero reading is as fast as it can be.
type reading struct {
	// buf is what the file is read into, grown where it is too small; the table
	// is in it as long as it is used.
	buf []byte
	// sized is told the file's size, before it is read.
	sized func(bytes int64)
	// rest is called between steps with the part that is done, up to 1; its error
	// ends the reading and is returned.
	rest func(part float64) error
}

// readStep is read, or verified, between two rests.
const readStep = 256 << 10

func (r *reading) file(fsys disk.FS, name string) ([]byte, error) {
	file, err := fsys.OpenFile(name, disk.ReadOnly)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	if r.sized != nil {
		r.sized(size)
	}
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	data := r.buf[:size]
	for at := 0; at < len(data); at += readStep {
		step := data[at:min(at+readStep, len(data))]
		if n, err := file.ReadAt(step, int64(at)); err != nil && (!errors.Is(err, io.EOF) || n != len(step)) {
			return nil, err
		}
		if r.rest == nil {
			continue
		}
		if err := r.rest(float64(at+len(step)) / float64(2*len(data))); err != nil {
			return nil, &restError{err}
		}
	}
	return data, nil
}

// restError is an error of a rest.
type restError struct{ error }

func (e *restError) Unwrap() error { return e.error }

// openTableFile reads the file of a table and verifies its index. Every error
// but one of the process itself, or of a rest, is a *DamageError.
func openTableFile(fsys disk.FS, dir string, id uint64, compression options.CompressionType, r *reading) (f *tableFile, err error) {
	f = &tableFile{name: table.IDToFilename(id)}
	data, err := r.file(fsys, filepath.Join(dir, f.name))
	var rested *restError
	switch {
	case errors.As(err, &rested):
		return nil, rested.error
	case errors.Is(err, fs.ErrNotExist):
		return nil, f.damage("the table is missing")
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM), errors.Is(err, fs.ErrPermission):
		return nil, err
	case err != nil:
		return nil, f.damage("it cannot be read: " + reason(err))
	case len(data) == 0:
		return nil, f.damage("the table is empty")
	}
	defer f.recovered(&err)
	f.Table, err = table.OpenInMemoryTable(data, id, &table.Options{
		ReadOnly: true, ChkMode: options.OnBlockRead, BlockSize: 4096, Compression: compression,
	})
	if err != nil {
		return nil, f.damage(firstLine(err))
	}
	return f, nil
}

// reason is an error of the system without the path.
func reason(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return firstLine(err)
}

func firstLine(err error) string {
	s, _, _ := strings.Cut(err.Error(), "\n")
	return s
}

func (f *tableFile) damage(what string) error {
	return &DamageError{Where: f.name, What: what, Action: actionRebuild}
}

// recovered turns a panic of Badger over broken bytes into damage.
func (f *tableFile) recovered(err *error) {
	if r := recover(); r != nil {
		*err = f.damage("the table's structure is broken")
	}
}

// readTable reads a table that is listed. Unless it is pinned an error means
// nothing once it is not listed any more.
func (s *Store) readTable(info *badger.TableInfo, r *reading) (*tableFile, error) {
	f, err := openTableFile(s.opts.Disk, s.dir, info.ID, compression, r)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(f.Smallest(), info.Left) || !bytes.Equal(f.Biggest(), info.Right) || f.KeyCount() != info.KeyCount {
		return nil, f.damage("it is not the table that was opened")
	}
	return f, nil
}

// newest returns the newest version of a key, up to version at, that is in the
// table.
func (f *tableFile) newest(key []byte, at uint64) (found version, err error) {
	defer f.recovered(&err)
	from := y.KeyWithTs(key, at)
	if y.CompareKeys(f.Biggest(), from) < 0 {
		return version{}, nil
	}
	it := f.NewIterator(table.NOCACHE)
	defer it.Close()
	// The table ends behind what is looked for, so only a bad block ends the
	// iterator before: it hides its error.
	if it.Seek(from); !it.Valid() {
		return version{}, f.damage(badBlock)
	}
	if !y.SameKey(from, it.Key()) {
		return version{}, nil
	}
	found.number = y.ParseTs(it.Key())
	value := it.ValueCopy()
	switch {
	case value.Meta&entryPointer != 0:
		return version{}, f.damage("a value is not in the table")
	case value.Meta&entryDeleted == 0:
		found.value = append([]byte{}, value.Value...)
	}
	return found, nil
}

const badBlock = "a block fails its checksum, or does not decompress"

// verify reads the table from its first entry to its last and checks every
// value. rest, if there is one, is called between steps with the part that is
// done, 1/2 to 1; its error is returned.
func (f *tableFile) verify(rest func(part float64) error) (err error) {
	defer f.recovered(&err)
	it := f.NewIterator(table.NOCACHE)
	defer it.Close()
	// A bad block ends the iterator, which hides its error: fewer entries come
	// than the index, whose checksum was verified, says.
	entries, all := uint32(0), f.KeyCount()
	steps := uint32(f.Size()/readStep) + 1
	for it.Rewind(); it.Valid(); it.Next() {
		if entries++; rest != nil && entries%(all/steps+1) == 0 {
			if err := rest(0.5 + 0.5*float64(entries)/float64(all)); err != nil {
				return err
			}
		}
		value := it.Value()
		switch {
		case value.Meta&entryPointer != 0:
			return f.damage("a value is not in the table")
		case value.Meta&entryDeleted != 0:
			continue
		}
		if _, err := openValue(y.ParseKey(it.Key()), value.Value); err != nil {
			return fmt.Errorf("table %s: %w", f.name, err)
		}
	}
	if entries != all {
		return f.damage(badBlock)
	}
	return nil
}
