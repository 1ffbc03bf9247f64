package guest

import (
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	childAddressSpace = 6 << 30 // in bytes; a Go process reserves 1 to 2 GiB before it does anything
	childNiceness     = 10
)

// limitChild limits the resources of the compiler's process. At a limit, the
// kernel or the Go runtime ends the process.
func limitChild(cpu time.Duration) error {
	seconds := uint64(max(cpu/time.Second, 1))
	limits := map[int]uint64{unix.RLIMIT_AS: childAddressSpace, unix.RLIMIT_CPU: seconds, unix.RLIMIT_CORE: 0}
	for which, limit := range limits {
		if err := unix.Setrlimit(which, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("limit the compiler: %w", err)
		}
	}
	// The kernel returns 20 minus the niceness. If the node has a higher
	// niceness already, the child keeps it, because raising the priority may
	// need a permission that the node lacks.
	if priority, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && 20-priority >= childNiceness {
		return nil
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, childNiceness); err != nil {
		return fmt.Errorf("lower the compiler's priority: %w", err)
	}
	return nil
}

// childAttributes makes the kernel kill the child when its parent dies.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
