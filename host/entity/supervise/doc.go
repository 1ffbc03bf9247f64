// Package supervise remembers which entities fault: how often in a row, until
// when they are parked, and when that is forgotten.
//
// It answers no request and closes no guest: a Lane does both. What is here
// belongs to the lane's goroutine and starts none.
package supervise
