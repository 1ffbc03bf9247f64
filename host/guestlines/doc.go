// Package guestlines keeps the newest lines that the guests of a node wrote,
// for those who follow them: what they logged, what they wrote to standard
// output and error, and how their calls failed.
//
// It never waits for a follower: one that is slow is told how many lines it
// missed. It starts no goroutine.
package guestlines
