package hostd

// Instant is a time, in nanoseconds since 1970 UTC. Package time would add a
// tenth to the size of every module; a guest that imports it anyway converts
// with time.Unix(0, int64(instant)).
type Instant int64

// Duration is a length of time in nanoseconds, as time.Duration is, to which
// it converts.
type Duration int64

// Never is the latest Instant, on 2262-04-11: a timer that is due then does not
// fire.
const Never Instant = 1<<63 - 1

// Lengths of time.
const (
	Millisecond Duration = 1_000_000
	Second               = 1000 * Millisecond
	Minute               = 60 * Second
	Hour                 = 60 * Minute
)

// Add returns the instant d later. One beyond Never is Never, and one as far
// before 1970 is the earliest.
func (i Instant) Add(d Duration) Instant { return Instant(saturated(int64(i), int64(d))) }

// Sub returns the time from earlier to i, or the longest Duration there is.
func (i Instant) Sub(earlier Instant) Duration {
	if earlier == -1<<63 { // has no negative
		return Duration(saturated(saturated(int64(i), 1<<63-1), 1))
	}
	return Duration(saturated(int64(i), -int64(earlier)))
}

// saturated is a+b, or the end of the range that it is beyond.
func saturated(a, b int64) int64 {
	switch sum := a + b; {
	case b > 0 && sum < a:
		return 1<<63 - 1
	case b < 0 && sum > a:
		return -1 << 63
	default:
		return sum
	}
}
