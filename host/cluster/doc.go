// Package cluster makes a node a member of its cluster. It reads and writes
// the metadata shard from any node, and reconciles the node's replicas with
// the metadata. It sends reports to the coordinator, which it runs on the
// node that leads the metadata shard. It answers other nodes' calls about
// members and modules.
//
// Leaders knows which node leads a shard. ClockWatch compares the node's wall
// clock with the clocks of other nodes: a node whose clock disagrees with most
// others leads nothing. ScrubTables and CheckRows look for damage in the store
// while the node runs, and a ConsistencyChecker compares replicas with each
// other. Damaged replicas stop, and the coordinator replaces them.
//
// The package never decides where a replica belongs (package coordinator does),
// never acts on metadata that may be older than what the node has acted on
// before, and never moves a shard because of gossip.
//
// Member owns its goroutines; Close joins them. The goroutines of the watches
// belong to the caller.
package cluster
