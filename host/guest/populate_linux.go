package guest

import (
	"errors"

	"golang.org/x/sys/unix"
)

// populate creates the pages of an accessible part of memory without changing
// its bytes.
func populate(part []byte) error {
	err := unix.Madvise(part, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) { // older than Linux 5.14
		touch(part)
		return nil
	}
	return err
}
