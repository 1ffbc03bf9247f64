// Package timers are the timers and schedules of the shards that an executor leads:
// which are due, at what rate they fire beside other requests, what a record
// says of them, and when a schedule ticks next.
//
// It decides no command and never reads the journal itself: an executor does both
// for it. Timers belong to the executor's goroutine and start none.
package timers
