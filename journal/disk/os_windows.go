package disk

import (
	"os"

	"golang.org/x/sys/windows"
)

func syncDir(string) error { return nil }

// Space returns the bytes that this process may still write to the volume of
// dir, and its size.
func Space(dir string) (free, total uint64, err error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err == nil {
		err = windows.GetDiskFreeSpaceEx(path, &free, &total, nil)
	}
	if err != nil {
		return 0, 0, &os.PathError{Op: "GetDiskFreeSpaceEx", Path: dir, Err: err}
	}
	return free, total, nil
}
