// Package recovery reads the write-ahead log of a node and rebuilds its raft
// groups. A starting node continues from the result, and tools inspect the
// result on a stopped node.
//
// It writes nothing, starts no raft, and rejects a log that contradicts itself.
// The package starts no goroutine.
package recovery
