// Package client is the Go client of the public API. It names every command
// before its first attempt and tries again with the same name, so a retry
// never has a second effect; it keeps to one node while that answers and goes
// on to the next when it does not.
//
// It never interprets a payload: what goes in and comes out is bytes. A Client
// starts no goroutine of its own; a Stream owns two and joins them in Close.
package client
