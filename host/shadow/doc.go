// Package shadow compares what another module decides on copies of commands
// with what came of them: which are taken, what waits, and what differs. What
// the other module puts out goes nowhere else.
//
// It runs no guest and starts no goroutine.
package shadow
