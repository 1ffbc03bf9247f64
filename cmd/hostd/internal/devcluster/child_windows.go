package devcluster

import (
	"os"
	"syscall"
)

// childAttributes cannot tie the child's life to its parent's on this system:
// if the parent is killed, the child survives. The child is in its own process
// group, so that it does not receive the console's Ctrl-C.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// send kills the process for any signal, because Windows has no signals.
// Nothing acknowledged is lost, because it is in the node's log.
func send(pid int, _ syscall.Signal) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // it may have just ended
	}
}

// endedBy reports whether a process was ended by a signal of this program.
func endedBy(status syscall.WaitStatus, _ syscall.Signal) bool { return status.ExitStatus() == 1 }

// readInBackground does nothing, because Windows has no terminal signals.
func readInBackground() {}
