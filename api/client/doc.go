// Package client is the Go client of the public API. It gives every command an
// id before the first attempt and retries it with the same id, so that a retry
// never has a second effect. It learns which node leads which shard and calls
// that node directly. If it does not know the leader, any node forwards the
// call; if a node does not answer, the client calls the next node.
//
// It never interprets a payload: payloads are opaque bytes. A Client starts no
// goroutine. A Stream owns one goroutine, and two more for each node to which
// it sends, and waits for them in Close.
package client
