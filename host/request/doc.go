// Package request is what is said of a command or a query between whoever asks
// and the lane that answers: the request, its result, and every error that may
// end it, with its API code, its number between nodes and what a router does
// next.
//
// A Processor counts the processor time of what a call starts, for the quotas.
//
// The package never runs a request, and starts no goroutine.
package request
