// Package request defines how a command or query is passed from its caller to
// the executor that runs it: the request, its result, and every error that
// can end it. Each error has its API code, its number between nodes, and what a
// router does next.
//
// A Processor counts the processor time that a call causes in other processes,
// for the quotas.
//
// The package never runs a request and starts no goroutine.
package request
