//go:build unix

package resident

import "golang.org/x/sys/unix"

// mapPage returns zeroed memory that the garbage collector neither counts nor
// scans.
func mapPage() ([]byte, error) {
	return unix.Mmap(-1, 0, pageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

func unmapPage(mem []byte) { _ = unix.Munmap(mem) } // fails only if mem is not mapped
