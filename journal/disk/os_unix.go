//go:build linux || darwin || freebsd

package disk

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Space returns the bytes that an unprivileged process may still write to the
// file system of dir, and its size.
func Space(dir string) (free, total uint64, err error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	bytes := func(blocks uint64) uint64 {
		if size := uint64(stat.Bsize); size == 0 || blocks <= math.MaxInt64/size {
			return blocks * size
		}
		return math.MaxInt64
	}
	return bytes(uint64(max(0, int64(stat.Bavail)))), bytes(stat.Blocks), nil
}
