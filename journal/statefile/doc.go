// Package statefile has the bytes in which the state of one shard travels from
// a node to another and lies in a file there, and the words with which the log
// and the state machine speak of a shard's lives on a node.
//
// It never interprets a key or a value, never believes a byte that a checksum
// has not confirmed, and starts no goroutine. FORMAT.md has the bytes.
package statefile
