package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/y"
)

// StrictGet reads the newest version of a key, up to version at, and proves its
// answer. If a block of a table is bad, Badger returns an older version or no
// version, without an error, so the answer of a View proves nothing. StrictGet
// instead reads each table that may contain the key from its file, and verifies
// the checksum of every block that it uses.
//
// found reports whether there is a value; body is a copy of it. An error that
// wraps journal.ErrDamaged is a *DamageError and names the file, or the key's
// class if Badger returned a value that no file contains. Any other error is
// the store's.
//
// StrictGet covers only the current tables. An earlier compaction that
// encountered a bad block may have dropped the data after it. A caller that
// knows from elsewhere that a value must exist therefore has to treat any other
// answer as damage.
//
// As for a View, the version must be at least the argument of the last
// SetDiscard. Tables are read one at a time, calls are serialized, and
// compactions continue meanwhile. A call needs about one millisecond per MiB of
// tables that may contain the key, which may include all new tables.
func (s *Store) StrictGet(key []byte, at uint64) (body []byte, found bool, err error) {
	s.strict.Lock()
	defer s.strict.Unlock()
	view, err := s.ViewAt(at)
	if err != nil {
		return nil, false, err
	}
	defer view.Close()
	// Badger is asked first: data may move from a memtable to a table before the
	// tables are listed, but never in the other direction.
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

// strictCheck verifies every table that may contain keys with the prefix, block
// by block and value by value, as StrictGet does. nil proves that rows missing
// from a scan of the prefix are in no table. strictCheck is for callers that
// found a row missing. Errors are as for StrictGet.
func (s *Store) strictCheck(prefix []byte) error {
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

// version is the value that one version stored for a key, nil if it was
// deleted. The zero version means that the key never existed.
type version struct {
	number uint64
	value  []byte
}

// newest returns the newest version of a key that Badger finds in memtables and
// tables. It may be too old if a table is damaged.
func (v *View) newest(key []byte) (found version, err error) {
	defer v.recoverDamage(key, &err)
	defer panicOnFault()()
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

// pinTries bounds how often the tables are listed again because they changed
// meanwhile. Listing takes microseconds, and tables change a few times per
// second.
const pinTries = 1000

var errTablesMove = errors.New("journal store: cannot list the tables because compactions keep replacing them")

// pin returns the current tables, whose files remain until unpin is called,
// even if they are compacted. Badger truncates and removes a replaced table as
// soon as nothing uses it. An iterator over the whole store uses all tables.
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
		// table ids are never reused, so equal lists prove that nothing changed
		tables = s.tables()
		if slices.EqualFunc(before, tables, func(a, b badger.TableInfo) bool { return a.ID == b.ID && a.Level == b.Level }) {
			return tables, unpin, nil
		}
		unpin()
	}
	return nil, nil, errTablesMove
}
