// Package offline changes the log of a stopped node: it restarts a group from a
// given state, removes a replica, or makes a replica the only member of its
// group.
//
// It appends the same records as a running node and starts no raft. The records
// depend only on the log, so an interrupted operation can be repeated. The
// package starts no goroutine, and never touches the log of a running node.
package offline
