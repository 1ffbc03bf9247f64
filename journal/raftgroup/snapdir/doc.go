// Package snapdir has the directory of a node's snapshots: states of shards
// that are sent from a file, states that are received, whole or in part, and
// how much room all that may take which can be done without.
//
// It knows names, bytes and checksums, and nothing of raft: which snapshot is
// sent, taken or given up is its user's to decide.
// The package starts no goroutine.
package snapdir
