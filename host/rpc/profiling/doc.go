// Package profiling takes profiles of a node's process, in pprof format, and of
// the guests of an entity type, and relays the profiles of other nodes.
//
// A call owns the goroutines that it starts and joins them before it returns. A
// node takes one profile at a time.
package profiling
