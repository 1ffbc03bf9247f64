// Package offline works on the data directory of a stopped node. It verifies
// the data, reads what the node knew, and repairs a node or a cluster that
// cannot start because of damage. Each entry point takes the directory's lock
// first and reports to a writer. Nothing here is used while a node runs, and no
// goroutine outlives a call.
package offline
