package guest

import (
	"bytes"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
)

// TestLogRate checks that exactly a burst is logged at first and then as many
// bytes as the rate allows per second, and that dropped lines are counted.
func TestLogRate(t *testing.T) {
	var dropped atomic.Uint64
	r := &logRate{dropped: &dropped}
	now := time.Unix(1_700_000_000, 0)
	const line = 1024
	logged := func(at time.Time) (n int) {
		for range 1000 {
			if r.take(at, line-logLineBytes) {
				n++
			}
		}
		return n
	}
	if n := logged(now); n != logBurst/line {
		t.Errorf("%d lines at once", n)
	}
	if n := logged(now.Add(time.Second)); n != logBytesPerSecond/line {
		t.Errorf("%d lines a second later", n)
	}
	if n := logged(now.Add(time.Hour)); n != logBurst/line {
		t.Errorf("%d lines an hour later", n)
	}
	if n := logged(now.Add(-time.Hour)); n == 0 {
		t.Error("nothing is logged after the clock was set back")
	}
	if n := dropped.Load(); n < 2000 {
		t.Errorf("%d lines are counted as dropped", n)
	}
}

// TestGuestLogIsRateLimited checks that the lines that guests log in many calls
// stay within the burst, including the lines about dropped lines.
func TestGuestLogIsRateLimited(t *testing.T) {
	var log bytes.Buffer
	var dropped atomic.Uint64
	l := guestLog{logger: slog.New(slog.NewTextHandler(&log, nil)), lineLimit: 32, byteLimit: 1024, rate: &logRate{dropped: &dropped}}
	text := []byte(strings.Repeat("x", 1024))
	for range 200 {
		for range 40 {
			l.line(abi.LogError, text)
		}
		l.end()
	}
	if log.Len() > 2*logBurst || log.Len() < logBurst/2 || dropped.Load() < 5000 {
		t.Errorf("%d bytes are logged, %d lines dropped", log.Len(), dropped.Load())
	}
}
