package disk

import (
	"math"
	"os"

	"golang.org/x/sys/windows"
)

func syncDir(string) error { return nil }

func freeBytes(dir string) (int64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(path, &free, nil, nil); err != nil {
		return 0, &os.PathError{Op: "GetDiskFreeSpaceEx", Path: dir, Err: err}
	}
	return int64(min(free, math.MaxInt64)), nil
}
