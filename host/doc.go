// Package host composes a node: it opens the journal, starts the raft groups,
// the lanes and the server, and stops them in reverse. It is the only place
// that knows all parts. Its own logic is their order, when the node is ready, how
// it hands its shards over, and when it ends.
//
// A Node owns every goroutine below it; Stop joins them.
package host
