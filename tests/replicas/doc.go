// Package replicas tests the state of a shard while replicas are created and
// removed: snapshots between nodes, removal, and power cuts during both, with
// the real log, state machine and store of each node in one goroutine.
package replicas
