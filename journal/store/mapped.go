package store

import (
	"fmt"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
)

// ReleaseMapped takes the tables out of the memory that counts as this
// process'. Badger maps them whole, so whatever was once written or read of
// them stays there, as much as the disk holds at last; the system keeps the
// pages that it has room for, and gives them back at the next use without
// reading the disk. It returns how many bytes of tables it went through: 0
// where the system does not tell what is mapped where.
//
// A page may only be let go of while it is certain that the table is what lies
// at its address. An iterator keeps all tables mapped that were there when it
// was made, and those are the ones listed both before and after.
func (s *Store) ReleaseMapped() (bytes int64, err error) {
	before := make(map[uint64]bool)
	for _, t := range s.tables() {
		before[t.ID] = true
	}
	v, err := s.ViewAt(s.MaxVersion())
	if err != nil {
		return 0, err
	}
	defer v.Close()
	pin := v.txn.NewIterator(badger.IteratorOptions{AllVersions: true})
	defer pin.Close()
	dir, err := filepath.Abs(s.dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return 0, fmt.Errorf("release mapped tables: %w", err)
	}
	pinned := make(map[string]bool, len(before))
	for _, t := range s.tables() {
		if before[t.ID] {
			pinned[filepath.Join(dir, fmt.Sprintf("%06d.sst", t.ID))] = true
		}
	}
	if bytes, err = releasePages(pinned); err != nil {
		return bytes, fmt.Errorf("release mapped tables: %w", err)
	}
	return bytes, nil
}
