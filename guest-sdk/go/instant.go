package hostd

// Instant is a time, in nanoseconds since 1970 UTC. It is used instead of
// package time, which would add a tenth to the size of every module. A guest
// that imports package time anyway converts with time.Unix(0, int64(instant)).
type Instant int64

// Duration is a length of time in nanoseconds. It converts to and from
// time.Duration.
type Duration int64

// Never is the latest Instant, on 2262-04-11: a timer with this due time does
// not fire.
const Never Instant = 1<<63 - 1

// Lengths of time.
const (
	Millisecond Duration = 1_000_000
	Second               = 1000 * Millisecond
	Minute               = 60 * Second
	Hour                 = 60 * Minute
)

// Add returns the instant d after i. The result saturates at Never and at the
// earliest Instant.
func (i Instant) Add(d Duration) Instant { return Instant(addSaturating(int64(i), int64(d))) }

// Sub returns i minus earlier, or the longest Duration if the difference
// exceeds it.
func (i Instant) Sub(earlier Instant) Duration {
	if earlier == -1<<63 { // the earliest value has no negative counterpart
		return Duration(addSaturating(addSaturating(int64(i), 1<<63-1), 1))
	}
	return Duration(addSaturating(int64(i), -int64(earlier)))
}

// addSaturating returns a+b, limited to the range of int64.
func addSaturating(a, b int64) int64 {
	switch sum := a + b; {
	case b > 0 && sum < a:
		return 1<<63 - 1
	case b < 0 && sum > a:
		return -1 << 63
	default:
		return sum
	}
}
