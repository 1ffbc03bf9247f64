// Package wire encodes the bytes of package raftgroup: the payloads of its
// records in the write-ahead log, the frames of messages between nodes, and the
// headers of snapshots. raftgroup/FORMAT.md describes them.
//
// It encodes, decodes and validates, and decides nothing. The package starts no
// goroutine.
package wire
