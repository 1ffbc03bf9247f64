package hostd

// Instant is a time, in nanoseconds since 1970 UTC. Package time would add a
// tenth to the size of every module; a guest that imports it anyway converts
// with time.Unix(0, int64(instant)).
type Instant int64

// Duration is a length of time in nanoseconds, as time.Duration is, to which
// it converts.
type Duration int64

// Lengths of time.
const (
	Millisecond Duration = 1_000_000
	Second               = 1000 * Millisecond
	Minute               = 60 * Second
	Hour                 = 60 * Minute
)

// Add returns the instant d later.
func (i Instant) Add(d Duration) Instant { return i + Instant(d) }

// Sub returns the time from earlier to i.
func (i Instant) Sub(earlier Instant) Duration { return Duration(i - earlier) }
