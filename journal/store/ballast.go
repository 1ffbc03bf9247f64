package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const ballastName = "ballast"

// FreeBytes is the space left to this process on the store's file system, and
// the size of that file system.
func (s *Store) FreeBytes() (free, total uint64, err error) { return freeBytes(s.dir) }

// ReserveBytes is the space that the store may take without another Write:
// the memtables with their logs, and the tables that they and one compaction
// become. A node that lets free space fall below it risks death by SIGBUS:
// Badger writes its logs through a mapping of a sparse file.
func (s *Store) ReserveBytes() uint64 {
	mem := uint64(s.opts.MemTableBytes)
	return uint64(s.opts.Memtables+1)*3*mem + 4*mem
}

// BallastBytes is the size of the ballast file now, 0 when it is released.
func (s *Store) BallastBytes() int64 {
	fi, err := os.Stat(filepath.Join(s.dir, ballastName))
	if err != nil {
		return 0
	}
	return fi.Size()
}

// ReleaseBallast gives the ballast's space back to the file system, for the
// work that frees more. The next Open with BallastBytes set takes it again if
// there is room.
func (s *Store) ReleaseBallast() error {
	err := os.Remove(filepath.Join(s.dir, ballastName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release ballast: %w", err)
	}
	return nil
}

// holdBallast makes the ballast file n bytes long if that leaves as much free
// again; a disk with less is left alone.
func holdBallast(dir string, n int64) (held bool, err error) {
	path := filepath.Join(dir, ballastName)
	if fi, err := os.Stat(path); err == nil && fi.Size() == n {
		return true, nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("resize ballast: %w", err)
	}
	free, _, err := freeBytes(dir)
	if err != nil {
		return false, err
	}
	if n == 0 || free < 2*uint64(n) {
		return false, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return false, fmt.Errorf("create ballast: %w", err)
	}
	err = errors.Join(allocate(f, n), f.Close())
	if err != nil {
		return false, errors.Join(fmt.Errorf("fill ballast: %w", err), os.Remove(path))
	}
	return true, nil
}
