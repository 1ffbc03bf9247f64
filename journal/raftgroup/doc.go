// Package raftgroup replicates the journals of many shards. It runs one raft
// group for each replica on this node, and drives all of them from one ready
// loop over one write-ahead log.
//
// Core is the pure part: inputs go in, and beginTurn and finishTurn return what
// a turn has to write, send, apply and report. It has no goroutine, no clock
// and no randomness of its own, and does no I/O. Driver executes the turns.
// Loop owns the goroutines of the package: the goroutine that calls Driver, and
// goroutines that send snapshots; Close waits for all of them.
//
// Idle groups sleep (sleep.go). The caller reports which nodes are alive; if
// the node of a group's leader is suspected, the group elects another leader at
// once (liveness.go and election.go).
//
// The package never interprets the data of an entry, never answers a read from
// a lease, never sends a vote or an append response before the state it
// promises is synced, and never continues after the write-ahead log failed.
//
// FORMAT.md describes the bytes of its log records and peer frames.
package raftgroup
