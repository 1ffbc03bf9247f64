// Package cluster makes a node a member of its cluster: it reads and writes
// the metadata shard from any node, brings the node's replicas to what the
// metadata says, tells the coordinator what the node sees, runs the
// coordinator where the metadata shard is led, and answers other nodes' calls
// for members and modules.
//
// It never decides where a replica belongs (package coordinator does), never
// acts on metadata that may be older than what the node once acted on, and
// never moves a shard on account of gossip.
//
// Member owns the goroutines; Close joins them.
package cluster
