// Package offline works on the data directory of a stopped node: it verifies
// what lies there, reads what the node knew, and brings a node or a cluster back
// that damage keeps from starting. Each entry takes the directory's lock first
// and reports to a writer. Nothing here is used while a node runs, and no
// goroutine outlives a call.
package offline
