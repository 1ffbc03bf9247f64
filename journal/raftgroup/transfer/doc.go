// Package transfer has a snapshot on its way to another node: what the sender
// asks before it, which bytes it sends, and what it finds out about its file.
//
// Which state is sent, to whom and when, is the raft groups' to decide.
// The package starts no goroutine.
package transfer
