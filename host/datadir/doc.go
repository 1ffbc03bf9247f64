// Package datadir manages a node's data directory itself: the names of its
// contents, the node's identity, the incarnations of nodes that were
// attested, the lock that keeps out a second process, and the free-space
// limit below which the node rejects writes. It knows nothing about the data
// of the journal and the modules. The package starts no goroutine.
package datadir
