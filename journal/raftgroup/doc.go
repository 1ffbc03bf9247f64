// Package raftgroup replicates the journals of many shards: one raft group for
// each replica this node holds, all of them in one ready loop over one
// write-ahead log.
//
// Core is the pure part: inputs go in, Begin and Finish hand out what a turn
// has to write, send, apply and report. It has no goroutine, no clock, no
// randomness of its own and does no I/O. Driver takes it through its turns. Loop
// owns the goroutines of the package, the one that calls Driver and those that
// send snapshots; Close joins them.
//
// Groups without work sleep, sleep.go. Which nodes are heard the caller says;
// a group whose leader's node goes silent looks for another at once,
// liveness.go and election.go.
//
// It never interprets the data of an entry, never answers a read from a lease,
// never sends a vote or an append response before what it promises is synced,
// and never goes on after the write-ahead log failed.
//
// FORMAT.md has the bytes of its log records and peer frames.
package raftgroup
