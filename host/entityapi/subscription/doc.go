// Package subscription streams events to callers that follow them or read them
// once: the events of one entity from its history, or the events of a type from
// all shards of the cluster, each shard in the order of its log. It reads from
// this node's replicas if they are suitable, and from the leaders of the other
// shards.
//
// It never writes, and keeps no state after a call has ended. A subscription has
// one goroutine for each node that it reads from, and joins them.
package subscription
