// Package virtualtime runs whole clusters in one process, inside a
// testing/synctest bubble: real nodes with raft, a write-ahead log and Badger
// on disk, HTTP/2 and gossip over a network in memory, guests in the engine,
// and the Go client. Time is the bubble's: minutes of an outage pass in
// seconds, and a pause that nobody ends is found at once.
//
// It never runs a second process and opens no socket. A world owns its nodes;
// the bubble fails a test that leaves a goroutine.
package virtualtime
