// Package statefile defines the snapshot format: the stream in which the state
// of one shard is sent to another node and stored in a file there. It also
// defines the types with which the log and the state machine describe the
// generations of a shard on a node.
//
// It never interprets a key or a value, never returns a byte that a checksum
// has not verified, and starts no goroutine. FORMAT.md describes the bytes.
package statefile
