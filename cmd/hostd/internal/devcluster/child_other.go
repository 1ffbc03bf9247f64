//go:build unix && !linux

package devcluster

import "syscall"

// childAttributes cannot tie the child's life to its parent's here: a parent
// that is killed leaves it behind.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
