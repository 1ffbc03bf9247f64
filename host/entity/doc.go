// Package entity runs entities: it decides commands and answers queries by
// calling guests, and turns each decision into one record of the journal. A
// Lane is one goroutine that owns a set of shards, their entities and the
// guest instances that hold the entities' state. Decisions run ahead of
// durability; outcomes never do: every reply, query result and rejection is
// held until all it saw is committed.
//
// It never writes to a disk or a socket itself, and holds no goroutine or lock
// per entity. A Lane owns its loop goroutine and its loaders; Close joins them.
//
// The decisions live in core, which has no goroutine, clock or I/O, so that a
// model can drive it step by step; lane.go is the thin loop around it.
package entity
