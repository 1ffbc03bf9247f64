package store

import (
	"github.com/dgraph-io/badger/v4"

	"github.com/hostd/hostd/journal/disk"
)

// freeBytes returns the space left to this process on the store's file system,
// and the size of that file system.
func (s *Store) freeBytes() (free, total uint64, err error) { return disk.Space(s.dir) }

// reserveBytes returns the space that the store may use without another Write:
// for the memtables' logs, for the tables produced from the memtables, and for
// one compaction. If the free space falls below it, the process risks SIGBUS,
// because Badger writes its logs and tables through mappings of sparse files.
func (s *Store) reserveBytes() uint64 {
	mem := uint64(s.opts.MemTableBytes)
	return uint64(s.opts.Memtables+1)*3*mem + 8*mem
}

// Room reports whether the file system has reserveBytes of free space. It takes
// microseconds. A Write without that space may end the process.
func (s *Store) Room() bool {
	free, _, err := s.freeBytes()
	return err != nil || free >= s.reserveBytes() // if the free space is unknown, writes must not be blocked
}

// hasSpaceToClose reports whether there is space for the writes of Close.
func (s *Store) hasSpaceToClose() bool {
	free, _, err := s.freeBytes()
	return s.opts.ReadOnly || err != nil || free >= uint64(s.opts.Memtables+1)*uint64(s.opts.MemTableBytes)
}

// UnmergedBytes returns roughly the number of bytes that Badger has to compact:
// new tables, and the excess of levels over their target size. If the result
// keeps growing, writes outpace compaction and eventually wait.
func (s *Store) UnmergedBytes() int64 { return unmergedBytes(s.db.Levels()) }

// unmergedBytes computes UnmergedBytes for levels. It counts bytes, because
// Badger may merge new tables into one instead of compacting them down, and
// fills a level far beyond its target size before it empties the level.
func unmergedBytes(levels []badger.LevelInfo) int64 {
	bytes := levels[0].Size
	for _, l := range levels[1:] {
		if l.Level < len(levels)-1 { // the last level has no limit
			bytes += max(0, l.Size-l.TargetSize)
		}
	}
	return bytes
}
