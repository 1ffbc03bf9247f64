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

// tableFile is a table read from its file into private memory. Badger's own
// copy is a memory mapping, in which reading a bad page causes a fault, and a
// bad block ends an iterator without an error. It serves one goroutine.
type tableFile struct {
	name string
	*table.Table
}

// Badger's flags of an entry in a table.
const (
	entryDeleted = 1 << 0
	entryPointer = 1 << 1 // the entry's value is in the value log
)

// reading controls how a table is read. The zero reading is as fast as
// possible.
type reading struct {
	// buf receives the file and grows as needed. The table uses it.
	buf []byte
	// sized is called with the file's size before it is read.
	sized func(bytes int64)
	// rest is called between steps with the completed fraction, up to 1. If it
	// returns an error, reading stops and returns it.
	rest func(part float64) error
}

// readStep is the number of bytes read or verified between two calls of rest.
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

// restError is an error returned by rest.
type restError struct{ error }

func (e *restError) Unwrap() error { return e.error }

// openTableFile reads the file of a table and verifies its index. Every error
// is a *DamageError, except errors of the process itself and of rest.
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
		return nil, f.damage("the table cannot be read: " + reason(err))
	case len(data) == 0:
		return nil, f.damage("the table is empty")
	}
	defer f.recoverDamage(&err)
	f.Table, err = table.OpenInMemoryTable(data, id, &table.Options{
		ReadOnly: true, ChkMode: options.OnBlockRead, BlockSize: 4096, Compression: compression,
	})
	if err != nil {
		return nil, f.damage(firstLine(err))
	}
	return f, nil
}

// reason returns a system error without its path.
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

// recoverDamage converts a panic of Badger over invalid bytes into damage.
func (f *tableFile) recoverDamage(err *error) {
	if r := recover(); r != nil {
		*err = f.damage("the table's structure is broken")
	}
}

// readTable reads a listed table. If the table is not pinned and is no longer
// listed, an error means nothing.
func (s *Store) readTable(info *badger.TableInfo, r *reading) (*tableFile, error) {
	f, err := openTableFile(s.opts.Disk, s.dir, info.ID, compression, r)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(f.Smallest(), info.Left) || !bytes.Equal(f.Biggest(), info.Right) || f.KeyCount() != info.KeyCount {
		return nil, f.damage("the contents differ from the table that was opened")
	}
	return f, nil
}

// newest returns the newest version of a key in the table, up to version at.
func (f *tableFile) newest(key []byte, at uint64) (found version, err error) {
	defer f.recoverDamage(&err)
	from := y.KeyWithTs(key, at)
	if y.CompareKeys(f.Biggest(), from) < 0 {
		return version{}, nil
	}
	it := f.NewIterator(table.NOCACHE)
	defer it.Close()
	// The table ends after the key, so only a bad block, whose error the
	// iterator hides, can end the iterator before it.
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

// verify reads the table from its first entry to its last and verifies every
// value. If rest is not nil it is called between steps with the completed
// fraction, 1/2 to 1, and its error is returned.
func (f *tableFile) verify(rest func(part float64) error) (err error) {
	defer f.recoverDamage(&err)
	it := f.NewIterator(table.NOCACHE)
	defer it.Close()
	// A bad block ends the iterator without an error, so fewer entries are read
	// than the verified index says.
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
