// Package peer is the communication between nodes: raft frames over one link
// per peer and direction, calls to other nodes' Control, snapshots, and failure
// detection. FORMAT.md describes the bytes.
//
// The package makes no decisions for the cluster, leaves all answers to its
// Control, and does not promise that a frame arrives: a frame arrives once or
// not at all. It accepts no connection itself; the node serves Handler on a
// listener.
//
// Peers owns a writer and a reader for each link that it keeps, and one
// goroutine that checks which nodes are suspected; Close joins them. The
// goroutines of served calls belong to the HTTP server. Close ends the calls
// that would not end by themselves.
package peer
