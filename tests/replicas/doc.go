// Package replicas tests what becomes of a shard's state when replicas come and
// go: snapshots between nodes, removal, and power cuts in all of it, with the
// real log, state machine and store of each node in one goroutine.
package replicas
