//go:build unix

package telemetry

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime returns the processor time of all threads of this process, or 0
// if the system does not report it.
func processorTime() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
