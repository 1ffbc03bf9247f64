// Package virtualtime runs whole clusters in one process, inside a
// testing/synctest bubble: real nodes with raft, a write-ahead log and Badger
// on disk, HTTP/2 and gossip over an in-memory network, guests in the engine,
// and the Go client. Time is simulated by the bubble: minutes of an outage pass
// in seconds, and a wait that never ends is detected at once.
//
// It never starts a second process and opens no socket. A world owns its nodes.
// The bubble fails a test that leaves a goroutine.
package virtualtime
