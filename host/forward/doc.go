// Package forward carries requests to the node that leads their shard and
// brings their outcomes back: a few bidirectional streams to every peer, and
// whatever is ready when a stream can take more goes in one message, both ways.
// FORMAT.md describes the bytes.
//
// It never chooses a node and never sends a request twice. A Client owns two
// goroutines for every stream that is in use, a Server one beside that of the
// call; Close joins them.
package forward
