// Package raftlog has the part of a group's log that is kept in memory, which
// raft reads, and what is known of the rest: where in the write-ahead log the
// entries lie, and a file with those that the log was cut of while a follower
// needs them.
//
// It decides nothing: what is cut, kept or given up its user says.
// A log belongs to the loop of its group; the package starts no goroutine.
package raftlog
