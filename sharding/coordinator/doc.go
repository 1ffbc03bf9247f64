// Package coordinator is the one decider of a cluster. Its pure core turns the
// metadata, the reports of the nodes and what is reachable into metadata
// commands and leadership transfers (Coordinator.Step, where the metadata shard
// is led); a pure function turns a shard's placement and its group's membership
// into the group's next change (Converge, where that shard is led). What it
// wants is always written into the metadata first, so that another coordinator
// goes on from there. It never does I/O, reads no clock, has no randomness and
// starts no goroutine.
package coordinator
