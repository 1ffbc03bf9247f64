// Package timers handles the timers and schedules of the shards that an
// executor leads: which timers are due, how fast they fire while the executor
// has other requests, how records describe them, and when a schedule ticks
// next.
//
// The package decides no commands and never reads the journal itself; the
// executor does both. Timers belong to the executor's goroutine and start no
// goroutine.
package timers
