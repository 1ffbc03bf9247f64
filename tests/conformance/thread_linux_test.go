package conformance

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime is the time that this thread has had a processor.
func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
