package store

import (
	"github.com/dgraph-io/badger/v4"

	"github.com/hostd/hostd/journal/disk"
)

// FreeBytes is the space left to this process on the store's file system, and
// the size of that file system.
func (s *Store) FreeBytes() (free, total uint64, err error) { return disk.Space(s.dir) }

// ReserveBytes is the space that the store may take without another Write:
// the memtables with their logs, and the tables that they and one compaction
// become. A node that lets free space fall below it risks death by SIGBUS:
// Badger writes its logs and tables through mappings of sparse files.
func (s *Store) ReserveBytes() uint64 {
	mem := uint64(s.opts.MemTableBytes)
	return uint64(s.opts.Memtables+1)*3*mem + 8*mem
}

// Room reports whether the file system has what the store may take. It costs
// microseconds. A Write without it risks the process.
func (s *Store) Room() bool {
	free, _, err := s.FreeBytes()
	return err != nil || free >= s.ReserveBytes() // what cannot be known does not stop anything
}

// closes reports whether there is room for what Close writes.
func (s *Store) closes() bool {
	free, _, err := s.FreeBytes()
	return s.opts.ReadOnly || err != nil || free >= uint64(s.opts.Memtables+1)*uint64(s.opts.MemTableBytes)
}

// UnmergedBytes is about how much Badger has to merge: new tables, and what
// levels hold beyond their size. Where it grows for long more is written than
// can be merged, and writing waits for merging at last.
func (s *Store) UnmergedBytes() int64 { return unmerged(s.db.Levels()) }

// unmerged is that for levels. Badger may join new tables to one instead of
// merging them down, and fills a level far beyond its size before it empties it:
// so what counts is bytes.
func unmerged(levels []badger.LevelInfo) int64 {
	bytes := levels[0].Size
	for _, l := range levels[1:] {
		if l.Level < len(levels)-1 { // the last has no bound
			bytes += max(0, l.Size-l.TargetSize)
		}
	}
	return bytes
}
