// Package host composes a node: it opens the journal, starts the raft groups,
// the lanes and the server, and stops them in reverse. It is the only place
// that knows all parts, and holds no logic of its own besides their order.
//
// A Node owns every goroutine below it; Stop joins them.
package host
