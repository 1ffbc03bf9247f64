// Package intake is where the deliveries of a lane wait: it decides how many go
// to their entities beside what callers ask for, and of which type the next is.
//
// It never decides a delivery. An Intake belongs to the lane's goroutine and
// starts none.
package intake
