// Package command makes requests of the commands and queries that callers send:
// names and payloads are checked, command ids made where callers give none, and
// a request is carried out while its caller waits.
//
// It never decides what a request does, and starts no goroutine: Calls waits in
// that of its caller.
package command
