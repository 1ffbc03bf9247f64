//go:build unix

package guest

import "golang.org/x/sys/unix"

// reserve reserves address space, which costs nothing and must not be touched
// yet.
func reserve(bytes int) ([]byte, error) {
	return unix.Mmap(-1, 0, bytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
}

// commit makes part of a reserved range accessible; it reads as zeros.
func commit(part []byte) error { return unix.Mprotect(part, unix.PROT_READ|unix.PROT_WRITE) }

// unreserve releases a whole range.
func unreserve(reserved []byte) error { return unix.Munmap(reserved) }
