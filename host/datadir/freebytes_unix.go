//go:build unix

package datadir

import "golang.org/x/sys/unix"

// freeBytes returns what an unprivileged process may still write, and the
// size, of the file system that holds dir.
func freeBytes(dir string) (free, total uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return st.Bavail * uint64(st.Bsize), st.Blocks * uint64(st.Bsize), nil
}
