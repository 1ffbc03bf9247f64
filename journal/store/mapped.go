package store

import (
	"fmt"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
)

// ReleaseMapped removes the tables' pages from this process's resident memory.
// Badger maps tables completely, so every page ever read or written stays
// resident, up to the size of the data on disk. The system keeps the pages that
// fit in its page cache and maps them again on the next access without reading
// the disk. ReleaseMapped returns the number of bytes of tables that it
// processed, or 0 if the system does not report mappings.
//
// A page may be released only while the table is certain to be mapped at its
// address. An iterator keeps all tables mapped that existed when it was
// created. These include the tables that are listed both before and after its
// creation.
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
