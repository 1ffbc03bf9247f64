// Package cluster makes a node a member of its cluster: it reads and writes
// the metadata shard from any node, brings the node's replicas to what the
// metadata says, tells the coordinator what the node sees, runs the
// coordinator where the metadata shard is led, and answers other nodes' calls
// for members and modules.
//
// Leaders says which node leads a shard. ClockWatch compares the node's wall clock
// with those of the nodes it hears: a node whose clock is off most others leads
// nothing. ScrubTables and AuditRows look for damage in the store while the node
// runs, and a ConsistencyChecker compares replicas with each other; damaged ones
// stop, and the coordinator replaces them.
//
// The package never decides where a replica belongs (package coordinator does), never
// acts on metadata that may be older than what the node once acted on, and
// never moves a shard on account of gossip.
//
// Member owns the goroutines; Close joins them. Those of the watches belong to the
// caller.
package cluster
