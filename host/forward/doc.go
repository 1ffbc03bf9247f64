// Package forward carries requests to the node that leads their shard and
// returns their outcomes. It uses a few bidirectional streams to every peer,
// and in both directions puts everything that is ready into one message when a
// stream has room for more. FORMAT.md describes the bytes.
//
// It never chooses a node and never sends a request twice. A Client owns two
// goroutines for every stream in use. A Server owns one goroutine for every
// stream, in addition to the goroutine of the call. Close joins them.
package forward
