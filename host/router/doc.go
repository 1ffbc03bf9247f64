// Package router takes requests from any node to the entities they are for:
// entity to shard, shard to the node that leads it, this one or another. While
// a leader is being looked for it holds requests back within bounds, and it
// sends again what is known not to have run, and what may have run under the
// command id that makes a repetition harmless.
//
// It never decides a command, and never lets one overtake an earlier one of
// the same entity by routing it again. A Router owns one goroutine, which
// Close joins.
//
// The decisions live in shardRoute, one for each shard, which has no goroutine,
// lock or clock, so that a model can drive it step by step; router.go is the
// thin shell around them.
package router

import (
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// Local runs requests on this node. Submit never blocks, keeps no reference to
// the slice and completes every request exactly once, in a lane or before it
// returns. A request that this node must not run, because it does not lead the
// shard, fails with a *sharding.NotLeaderError.
type Local interface {
	Submit(reqs []*request.Request)
}

// Remote runs requests on another node as Local does on this one, in the order
// submitted per entity. What certainly did not run fails with an error that
// wraps request.ErrUnreachable, what may have run with
// request.ErrOutcomeUnknown, and with request.ErrMayComeThrough what may yet.
// Once it has failed a request of a shard for the sake of the way there, it
// fails all others with the same Route.Round or a lower one that are given to
// it later: they could overtake.
type Remote interface {
	Submit(to sharding.NodeID, reqs []*request.Request)
}

// Leaders is what this node knows of the leaders of shards. No method blocks.
type Leaders interface {
	// Leader names the node that leads the shard; self says that it is this
	// one, which serves. known is false while no leader is known.
	Leader(shard sharding.ShardID) (node sharding.NodeID, self, known bool)
	// Candidates are the nodes with a replica of the shard. A node that is not
	// among them hears of no election and asks them in turn.
	Candidates(shard sharding.ShardID) []sharding.NodeID
	// Quorum is false if the shard can have no leader that this node reaches:
	// the nodes with a replica that it hears are no quorum.
	Quorum(shard sharding.ShardID) bool
	// Missing says why the shard may have no leader.
	Missing(shard sharding.ShardID) sharding.Missing
	// Stopped says why this node's replica of the shard has stopped, if it has
	// one that did. Without a quorum that is what callers are told.
	Stopped(shard sharding.ShardID) sharding.StopReason
	// Changed returns a channel that gets a value, or is closed, when anything
	// that was told before the call has changed.
	Changed() <-chan struct{}
}
