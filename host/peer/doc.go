// Package peer is how nodes speak to each other: raft frames over one link per
// peer and direction, calls to the other nodes' control, snapshots, and who is
// heard. The bytes are described in FORMAT.md beside it.
//
// It never decides anything, never answers what it has not been told, and never
// promises that a frame arrives: a frame arrives once or not at all. It takes
// no connection itself; the node serves Handler on a listener.
//
// Peers owns a writer and a reader for each link that it keeps and one
// goroutine that watches the silence of all; Close joins them. The goroutines
// of calls that are served belong to the HTTP server, and Close ends the calls
// that would not end by themselves.
package peer
