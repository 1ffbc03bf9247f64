// Package fair is the queue of what waits for a lane: callers take turns there,
// so that who asks for much does not keep others waiting. It decides nothing
// and starts no goroutine.
package fair
