// Package offline changes the log of a stopped node: a group begins anew with a
// given state, a replica is given up, or made the only one of its group.
//
// It writes the records that a running node writes for the same, and starts no
// raft: what it appends depends on the log alone, so that what was interrupted
// can be repeated.
// The package starts no goroutine, and never touches the log of a node that runs.
package offline
