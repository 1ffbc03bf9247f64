package disk

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// syncData uses fdatasync, which syncs a file's length with its bytes but not
// its times.
func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		runtime.KeepAlive(f)
		if err == nil {
			return nil
		}
		// EINTR means that the sync was not attempted, which is not a failure.
		if errors.Is(err, unix.EBADF) {
			err = os.ErrClosed
		}
		if !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}

func allocate(f *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(f.Fd()), 0, 0, size)
		runtime.KeepAlive(f)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return f.Truncate(size)
		default:
			return err
		}
	}
}
