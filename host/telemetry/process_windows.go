package telemetry

import (
	"time"

	"golang.org/x/sys/windows"
)

// processorTime returns the processor time of all threads of this process, or 0
// if the system does not report it.
func processorTime() time.Duration {
	var created, exited, kernel, user windows.Filetime
	if windows.GetProcessTimes(windows.CurrentProcess(), &created, &exited, &kernel, &user) != nil {
		return 0
	}
	ticks := func(f windows.Filetime) int64 { return int64(f.HighDateTime)<<32 | int64(f.LowDateTime) }
	return time.Duration(100 * (ticks(kernel) + ticks(user))) // a tick is 100 ns
}
