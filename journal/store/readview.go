package store

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// View reads the store as of one version. It serves one goroutine, and holds
// memory and old versions until Close.
type View struct {
	st      *Store
	version uint64
	txn     *badger.Txn
	calling bool // a caller's function runs: a panic is the caller's
	broken  bool // Badger panicked: it has lost count of its iterators
}

// ViewAt returns a view of what batches up to the version left. It does no
// I/O. The version is at least what SetDiscard was given. The error is
// ErrClosed.
func (s *Store) ViewAt(version uint64) (*View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.views[version]++
	return &View{st: s, version: version, txn: s.db.NewTransactionAt(version, false)}, nil
}

// Close releases the view. It may be called once.
func (v *View) Close() {
	defer v.st.release(v.version)
	if v.broken {
		defer func() { _ = recover() }()
	}
	v.txn.Discard()
}

func (s *Store) release(version uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.views[version]--; s.views[version] == 0 {
		delete(s.views, version)
	}
	if len(s.views) == 0 {
		s.idle.Broadcast()
	}
}

// Get calls fn with the value's body, valid during the call, and returns its
// error; found is false when there is no such key.
func (v *View) Get(key []byte, fn func(body []byte) error) (found bool, err error) {
	defer v.recovered(key, &err)
	defer faulting()()
	item, err := v.txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", DescribeKey(key), err)
	}
	return true, item.Value(func(value []byte) error {
		body, err := openValue(key, value)
		if err != nil {
			return err
		}
		v.calling = true
		err = fn(body)
		v.calling = false
		return err
	})
}

// ErrStop ends a Scan early; Scan then returns nil.
var ErrStop = errors.New("stop the scan")

// Scan calls fn for every key with the prefix that is not before from (nil:
// all), in order; key and body are valid during the call. An error of fn ends
// it and is returned, but for ErrStop.
func (v *View) Scan(prefix, from []byte, fn func(key, body []byte) error) error {
	err := v.scan(prefix, from, func(item *badger.Item) error {
		key := item.Key()
		return item.Value(func(value []byte) error {
			body, err := openValue(key, value)
			if err != nil {
				return err
			}
			v.calling = true
			err = fn(key, body)
			v.calling = false
			return err
		})
	})
	if errors.Is(err, ErrStop) {
		return nil
	}
	return err
}

func (v *View) scan(prefix, from []byte, fn func(*badger.Item) error) (err error) {
	defer v.recovered(prefix, &err)
	defer faulting()()
	if from == nil {
		from = prefix
	}
	it := v.txn.NewIterator(badger.IteratorOptions{Prefix: prefix})
	defer it.Close()
	for it.Seek(from); it.Valid(); it.Next() {
		if err := fn(it.Item()); err != nil {
			return err
		}
	}
	return nil
}

// recovered turns a panic of Badger over broken bytes, or over a page that cannot
// be read, into damage; one of the caller's function goes on.
func (v *View) recovered(key []byte, err *error) {
	if v.calling {
		return
	}
	if r := recover(); r != nil {
		v.broken = true
		*err = broken(r, DescribeKey(key))
	}
}

// ScanRaw calls fn for every key with its value as stored, frame included and
// unchecked: for tools. Key and value are valid during the call.
func (v *View) ScanRaw(fn func(key, value []byte) error) error {
	return v.scan(nil, nil, func(item *badger.Item) error {
		return item.Value(func(value []byte) error { return fn(item.Key(), value) })
	})
}
