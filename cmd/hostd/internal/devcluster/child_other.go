//go:build unix && !linux

package devcluster

import "syscall"

// childAttributes cannot tie the child's life to its parent's on this system:
// if the parent is killed, the child survives.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
