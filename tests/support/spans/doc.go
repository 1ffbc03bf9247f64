// Package spans says where the time of requests goes, from a trace of Go's
// scheduler: who ran, who was woken and did not run yet, and who was in a call
// of the system. The program that is traced needs no code for it.
package spans
