// Package host assembles a node: it opens the journal, starts the raft groups,
// the executors and the server, and stops them in reverse order. It is the only
// package that knows all parts of a node. The only logic of its own is the
// order of these steps, when the node is ready, how it transfers its
// leaderships before it stops, and which failures end the process.
//
// A Node owns every goroutine that it starts; Stop waits for all of them.
package host
