// Package profiling takes profiles of a node's process, in the format of pprof,
// and of the guests of an entity type, and brings those of other nodes to the
// caller.
//
// A call owns what it starts, and ends it before it returns. A node takes one
// profile at a time.
package profiling
