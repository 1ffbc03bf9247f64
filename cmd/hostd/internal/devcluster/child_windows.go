package devcluster

import (
	"os"
	"syscall"
)

// childAttributes cannot tie the child's life to its parent's here: a parent
// that is killed leaves it behind. In a process group of its own the child does
// not get the console's Ctrl-C.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// send ends the process with each signal: Windows delivers none. What the node
// acknowledged is in its log.
func send(pid int, _ syscall.Signal) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill() // it may end at this moment
	}
}

// endedBy reports whether a process was ended by a signal of this program.
func endedBy(status syscall.WaitStatus, _ syscall.Signal) bool { return status.ExitStatus() == 1 }

// readInBackground has nothing to prepare: there is no terminal signal.
func readInBackground() {}
