// Package recovery reads what the write-ahead log of a node holds: the raft
// groups as its records left them, which a start goes on from, and which tools
// look at on a stopped node.
//
// It writes nothing, starts no raft, and refuses a log that contradicts itself.
// The package starts no goroutine.
package recovery
