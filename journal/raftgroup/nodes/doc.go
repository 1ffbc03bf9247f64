// Package nodes tracks the other nodes as this node's raft groups see them:
// which are alive and which are suspected, and on which of them the replicas of
// a group live.
//
// It counts ticks and reads no clock. The caller reports which nodes are alive
// and acts on suspicions. The package starts no goroutine.
package nodes
