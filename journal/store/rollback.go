package store

import (
	"bytes"
	"fmt"
	"math"

	"github.com/dgraph-io/badger/v4"
)

// RollBack restores every key that changed after the version to its value as of
// the version, or deletes it. It does so in one batch with a new version, which
// it returns. If nothing changed it writes nothing and returns version.
//
// After a crash Badger may contain any part of the batches after the watermark.
// Rolled back to the watermark recorded in the log, the store again equals the
// result of a prefix of the log, and the entries after it can be applied as if
// for the first time. If a crash happens before Watermark reaches the new
// version, the next process rolls back to the recorded watermark again.
func (s *Store) RollBack(version uint64) (uint64, error) {
	highest := s.MaxVersion()
	if highest <= version {
		return version, nil
	}
	view, err := s.ViewAt(version)
	if err != nil {
		return 0, err
	}
	defer view.Close()
	var b Batch
	err = s.touchedSince(version, func(key []byte) error {
		found, err := view.Get(key, func(body []byte) error {
			b.Put(key, body)
			return nil
		})
		if err == nil && !found {
			b.Delete(key)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("roll back to version %d: %w", version, err)
	}
	if b.Len() == 0 {
		return version, nil
	}
	if err := s.Write(&b, highest+1); err != nil {
		return 0, fmt.Errorf("roll back to version %d: %w", version, err)
	}
	return highest + 1, nil
}

// touchedSince calls fn once for each key with a version above since.
func (s *Store) touchedSince(since uint64, fn func(key []byte) error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = damageFromPanic(r, "store")
		}
	}()
	defer panicOnFault()()
	txn := s.db.NewTransactionAt(math.MaxUint64, false)
	defer txn.Discard()
	it := txn.NewIterator(badger.IteratorOptions{AllVersions: true, SinceTs: since})
	defer it.Close()
	var last []byte
	for it.Rewind(); it.Valid(); it.Next() {
		key := it.Item().Key()
		if bytes.Equal(key, last) {
			continue
		}
		last = append(last[:0], key...)
		if err := fn(last); err != nil {
			return err
		}
	}
	return nil
}
