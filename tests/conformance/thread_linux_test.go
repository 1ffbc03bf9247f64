package conformance

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the processor time of this thread.
func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
