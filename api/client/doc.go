// Package client is the Go client of the public API. It names every command
// before its first attempt and tries again with the same name, so a retry
// never has a second effect. It learns which node leads which shard and goes
// straight there; where it does not know, any node passes the call on, and when
// one does not answer it goes on to the next.
//
// It never interprets a payload: what goes in and comes out is bytes. A Client
// starts no goroutine of its own; a Stream owns one, and two for each node that
// it sends to, and joins them in Close.
package client
