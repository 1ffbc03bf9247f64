// Package router routes requests to entities across the cluster: it maps an
// entity to its shard and the shard to the node that leads it, which may be
// this node. While it does not know the leader of a shard, it holds the shard's
// requests in a bounded queue. It resends requests that certainly did not run,
// and requests that may have run if their command id makes a repetition
// idempotent.
//
// It never decides a command, and a resent command never overtakes an earlier
// command of the same entity. A Router owns one goroutine, which Close joins.
//
// The decisions are in shardRoute, one for each shard. It has no goroutine,
// lock or clock, so that a model test can drive it step by step. Router is a
// thin shell around the routes.
package router

import (
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// Local runs requests on this node. Submit never blocks, keeps no reference to
// the slice and completes every request exactly once, on an executor or before
// it returns. If this node does not lead the shard, the request fails with a
// *sharding.NotLeaderError.
type Local interface {
	Submit(reqs []*request.Request)
}

// Remote runs requests on another node as Local does on this one, and keeps the
// submission order of requests to the same entity. A request that certainly did
// not run fails with an error that wraps request.ErrUnreachable; a request that may
// have run fails with request.ErrOutcomeUnknown, or with
// request.ErrMayStillApply if it may still run later. Once the connection has
// made a request of a shard fail, Remote also fails every request of that shard
// with the same or a lower Route.Round that is submitted afterwards, because
// that request could overtake the failed one.
type Remote interface {
	Submit(to sharding.NodeID, reqs []*request.Request)
}

// Leaders is this node's knowledge of the leaders of shards. No method blocks.
type Leaders interface {
	// Leader returns the node that leads the shard. self means that this node
	// leads and serves it. known is false if no leader is known.
	Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool)
	// Candidates returns the nodes that hold a replica of the shard. A node
	// that holds none does not observe elections, so it asks the candidates in
	// turn.
	Candidates(shard sharding.ShardID) []sharding.NodeID
	// Quorum is false if the shard cannot have a leader that this node reaches,
	// because the replica holders that it reaches are less than a quorum.
	Quorum(shard sharding.ShardID) bool
	// Missing returns why the shard may have no leader.
	Missing(shard sharding.ShardID) sharding.Missing
	// StopReason returns why this node's replica of the shard stopped, if it did.
	// Callers see this reason if the shard has no quorum.
	StopReason(shard sharding.ShardID) sharding.StopReason
	// Changed returns a channel that receives a value or is closed when the
	// result of any other method has changed since the call.
	Changed() <-chan struct{}
}
