//go:build unix

package devcluster

import (
	"os/signal"
	"syscall"
)

func send(pid int, s syscall.Signal) {
	_ = syscall.Kill(pid, s) // it may have just ended
}

// endedBy reports whether a process was ended by a signal.
func endedBy(status syscall.WaitStatus, s syscall.Signal) bool { return status.Signal() == s }

// readInBackground makes a read from the terminal fail while this process is in
// the background. Otherwise the terminal would stop the process.
func readInBackground() { signal.Ignore(syscall.SIGTTIN) }
