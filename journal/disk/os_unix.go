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

func freeBytes(dir string) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	blocks, size := uint64(max(0, int64(stat.Bavail))), uint64(stat.Bsize)
	if size != 0 && blocks > math.MaxInt64/size {
		return math.MaxInt64, nil
	}
	return int64(blocks * size), nil
}
