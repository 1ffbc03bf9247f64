package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"
)

// StrictGet reads the newest version of a key, up to version at, so that what
// it says is proven. Where a block of a table is bad, Badger finds an older
// version or none, and tells nobody: a read of a View proves neither. So here
// each table that may hold the key is read whole from its file, and every block
// that is looked at has its checksum verified.
//
// found says whether there is a value, body is a copy of it. An error that is
// journal.ErrDamaged is a *DamageError and names the file, or the key's class
// where Badger served what is not in any file; any other is the store's.
//
// It speaks of the tables that there are now: a merge that met a bad block
// before may have dropped what was behind it. Whoever knows by other means that
// there must be a value, or which, takes another answer for damage.
//
// Like a View's, the version is at least what SetDiscard was given. Tables are
// read one at a time, calls wait for each other, and merges go on meanwhile: it
// takes as many milliseconds as there are MiB in tables that may hold the key,
// which may be all of the newest.
func (s *Store) StrictGet(key []byte, at uint64) (body []byte, found bool, err error) {
	s.strict.Lock()
	defer s.strict.Unlock()
	view, err := s.ViewAt(at)
	if err != nil {
		return nil, false, err
	}
	defer view.Close()
	// What is in a memtable now may be in a table once these are listed, but
	// not the other way round.
	newest, served := view.newest(key)
	tables, unpin, err := s.pin()
	if err != nil {
		return nil, false, err
	}
	defer unpin()
	var r reading
	for i := range tables {
		info := &tables[i]
		if bytes.Compare(key, y.ParseKey(info.Left)) < 0 || bytes.Compare(key, y.ParseKey(info.Right)) > 0 {
			continue
		}
		t, err := s.readTable(info, &r)
		if err != nil {
			return nil, false, err
		}
		v, err := t.newest(key, at)
		if err != nil {
			return nil, false, err
		}
		if v.number > newest.number {
			newest = v
		}
	}
	if served != nil || newest.value == nil {
		return nil, false, served
	}
	if body, err = openValue(key, newest.value); err != nil {
		return nil, false, err
	}
	return body, true, nil
}

// StrictCheck verifies every table that may hold keys with the prefix, block by
// block and value by value, as StrictGet reads them: nil proves that what a scan
// of the prefix lacks is in no table. It is for who found that a scan lacks
// something. The error is as StrictGet's.
func (s *Store) StrictCheck(prefix []byte) error {
	s.strict.Lock()
	defer s.strict.Unlock()
	tables, unpin, err := s.pin()
	if err != nil {
		return err
	}
	defer unpin()
	var r reading
	for i := range tables {
		info := &tables[i]
		first, last := y.ParseKey(info.Left), y.ParseKey(info.Right)
		if bytes.Compare(last, prefix) < 0 || bytes.Compare(first, prefix) > 0 && !bytes.HasPrefix(first, prefix) {
			continue
		}
		t, err := s.readTable(info, &r)
		if err == nil {
			err = t.verify(nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// version is what one version made of a key: its value as stored, nil where it
// was deleted. The zero version is that of a key that never was.
type version struct {
	number uint64
	value  []byte
}

// newest is what Badger finds of a key, in memtables and tables: an older
// version than there is, where a table is damaged.
func (v *View) newest(key []byte) (found version, err error) {
	defer v.recovered(key, &err)
	defer faulting()()
	it := v.txn.NewKeyIterator(key, badger.IteratorOptions{})
	defer it.Close()
	it.Rewind()
	if !it.Valid() {
		return version{}, nil
	}
	item := it.Item()
	found.number = item.Version()
	if item.IsDeletedOrExpired() {
		return found, nil
	}
	err = item.Value(func(value []byte) error {
		found.value = append([]byte{}, value...)
		return nil
	})
	if err != nil {
		return version{}, fmt.Errorf("read %s: %w", DescribeKey(key), err)
	}
	return found, nil
}

// pinTries bounds how often tables are listed until none came or went
// meanwhile, which takes microseconds; they do some times in a second.
const pinTries = 1000

var errTablesMove = errors.New("journal store: tables come and go too fast to be listed")

// pin returns the tables that there are, which stay in their files until unpin
// is called, merged or not. A table that a merge has replaced is cut to nothing
// before its name goes, as soon as nobody uses it; an iterator over the whole
// store does use them all.
func (s *Store) pin() (tables []badger.TableInfo, unpin func(), err error) {
	for range pinTries {
		before := s.tables()
		view, err := s.ViewAt(s.MaxVersion())
		if err != nil {
			return nil, nil, err
		}
		it := view.txn.NewIterator(badger.IteratorOptions{AllVersions: true})
		unpin = func() {
			it.Close()
			view.Close()
		}
		// An id is not given twice, so equal lists are of the same moment.
		tables = s.tables()
		if slices.EqualFunc(before, tables, func(a, b badger.TableInfo) bool { return a.ID == b.ID && a.Level == b.Level }) {
			return tables, unpin, nil
		}
		unpin()
	}
	return nil, nil, errTablesMove
}
