package resident

import "time"

// Tick is a time in units of TickEvery, modulo 497 days.
type Tick uint32

const TickEvery = 10 * time.Millisecond

// TickAt returns the first tick that is not before t.
func TickAt(t time.Time) Tick { return Tick((t.UnixNano() + int64(TickEvery) - 1) / int64(TickEvery)) }

// Since returns the time from then to t, at most TickEvery too short.
func (then Tick) Since(t time.Time) time.Duration {
	return time.Duration(int32(Tick(t.UnixNano()/int64(TickEvery))-then)) * TickEvery
}
