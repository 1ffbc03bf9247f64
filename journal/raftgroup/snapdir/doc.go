// Package snapdir manages the snapshot directory of a node: shard states being
// sent from a file, states being received, complete or in part, and how much
// space the expendable files use.
//
// It handles names, bytes and checksums, and knows nothing of raft: the caller
// decides which snapshot is sent, received or discarded. The package starts no
// goroutine.
package snapdir
