// Package command converts the commands and queries that callers send to
// requests. It validates names and payloads, makes command ids for callers that
// give none, and runs a request while its caller waits.
//
// It never decides commands, and starts no goroutine: Calls waits in its
// caller's goroutine.
package command
