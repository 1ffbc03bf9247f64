// Package raftlog holds the part of a group's raft log that is in memory, which
// raft reads through its Storage interface. It also knows where in the
// write-ahead log the entries lie, and keeps truncated entries in a file while
// a follower that receives a snapshot needs them.
//
// It decides nothing: the caller decides what is truncated and kept. A log
// belongs to the loop of its group; the package starts no goroutine.
package raftlog
