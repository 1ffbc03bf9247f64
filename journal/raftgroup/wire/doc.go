// Package wire has the bytes of package raftgroup: the payloads of its records
// in the write-ahead log, the frames of messages between nodes, and what goes
// before a snapshot. FORMAT.md beside that package describes them.
//
// It reads and writes, checks what it reads, and decides nothing.
// The package starts no goroutine.
package wire
