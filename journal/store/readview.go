package store

import (
	"errors"
	"fmt"

	"github.com/dgraph-io/badger/v4"
)

// View reads the store as of one version. It serves one goroutine, and pins
// memory and old versions until Close.
type View struct {
	st      *Store
	version uint64
	txn     *badger.Txn
	calling bool // a caller's function is running, so a panic is the caller's
	broken  bool // Badger panicked and lost count of its iterators
}

// ViewAt returns a view of all batches up to the version, which must be at
// least the argument of the last SetDiscard. It does no I/O. The error is
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

// Get calls fn with the value's body, which is valid during the call, and
// returns fn's error. found is false if there is no such key.
func (v *View) Get(key []byte, fn func(body []byte) error) (found bool, err error) {
	defer v.recoverDamage(key, &err)
	defer panicOnFault()()
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

// Scan calls fn for every key with the prefix, in order, starting at from (nil:
// at the first). key and body are valid during the call. If fn returns an
// error, Scan stops and returns it, except for ErrStop.
func (v *View) Scan(prefix, from []byte, fn func(key, body []byte) error) error {
	if from == nil {
		from = prefix
	}
	return v.scanBodies(badger.IteratorOptions{Prefix: prefix}, from, fn)
}

// ScanBack is Scan from the last key with the prefix to the first. The byte
// after the prefix must not be 0xff.
func (v *View) ScanBack(prefix []byte, fn func(key, body []byte) error) error {
	last := append(prefix[:len(prefix):len(prefix)], 0xff)
	return v.scanBodies(badger.IteratorOptions{Prefix: prefix, Reverse: true}, last, fn)
}

func (v *View) scanBodies(o badger.IteratorOptions, from []byte, fn func(key, body []byte) error) error {
	err := v.scan(o, from, func(item *badger.Item) error {
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

func (v *View) scan(o badger.IteratorOptions, from []byte, fn func(*badger.Item) error) (err error) {
	defer v.recoverDamage(o.Prefix, &err)
	defer panicOnFault()()
	it := v.txn.NewIterator(o)
	defer it.Close()
	for it.Seek(from); it.Valid(); it.Next() {
		if err := fn(it.Item()); err != nil {
			return err
		}
	}
	return nil
}

// recoverDamage converts a panic of Badger over invalid bytes or an unreadable page
// into damage. A panic of the caller's function propagates.
func (v *View) recoverDamage(key []byte, err *error) {
	if v.calling {
		return
	}
	if r := recover(); r != nil {
		v.broken = true
		*err = damageFromPanic(r, DescribeKey(key))
	}
}

// ScanRaw calls fn for every key with its stored value, including the frame and
// without verification, for tools. Key and value are valid during the call.
func (v *View) ScanRaw(fn func(key, value []byte) error) error {
	return v.scan(badger.IteratorOptions{}, nil, func(item *badger.Item) error {
		return item.Value(func(value []byte) error { return fn(item.Key(), value) })
	})
}
