package guest

import (
	"errors"

	"golang.org/x/sys/unix"
)

// populate makes the pages of an accessible part of memory, whose bytes stay as
// they are.
func populate(part []byte) error {
	err := unix.Madvise(part, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.14
		touch(part)
		return nil
	}
	return err
}
