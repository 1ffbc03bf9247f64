package resident

import "time"

// Tick is a moment in steps of TickEvery, modulo 497 days.
type Tick uint32

const TickEvery = 10 * time.Millisecond

// TickAt is the first tick that is not before a moment.
func TickAt(t time.Time) Tick { return Tick((t.UnixNano() + int64(TickEvery) - 1) / int64(TickEvery)) }

// Since is the time from then to t, up to TickEvery too short.
func (then Tick) Since(t time.Time) time.Duration {
	return time.Duration(int32(Tick(t.UnixNano()/int64(TickEvery))-then)) * TickEvery
}
