package host

import (
	"time"

	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/cluster"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// inCluster implements the interface through which package cluster uses the
// node. It reports whether the node can serve its shards, which depends on
// several of its parts, and it handles the coordinator's reports.
type inCluster struct{ n *Node }

// Able reports whether the node can lead its shards. A node that cannot follow
// the metadata gets no replicas and no leaderships.
func (c inCluster) Able() bool {
	n := c.n
	return !n.guests.modules.Types.Failing() && !n.watches.stalls.IsStalled() && !n.watches.clock.IsOff() && n.replicas.StopReason(sharding.MetaShard) == sharding.NotStopped
}

// Full reports whether the disk has no room for more data.
func (c inCluster) Full() bool { return c.n.watches.disk.ReadOnly() }

// Disputed reports whether the checksum of the node's replica of a shard is
// disputed.
func (c inCluster) Disputed(shard sharding.ShardID) bool {
	return c.n.replicas.consistency.Refuses(shard) != nil
}

// Pace returns the current duration of a turn of the raft loop.
func (c inCluster) Pace() time.Duration { return c.n.replicas.paceNow() }

// Skew returns how far the node's clock is ahead of the other nodes' clocks.
func (c inCluster) Skew() time.Duration { return c.n.watches.clock.Skew() }

// OnCollected reports modules that the coordinator, which runs on this node,
// has removed from the cluster.
func (c inCluster) OnCollected(digests []meta.Digest) {
	n := c.n
	for _, digest := range digests {
		n.guests.collected.Add(1)
		n.logger.Info("a module that nothing has needed for long is removed from the cluster", "digest", digest.String(), "retention", n.membership.metadata.View().ModuleRetention())
		n.audit.Did(modulev1connect.ModuleServiceDeleteModuleProcedure, "digest="+digest.String()+" unused=true")
	}
}

// OnClusterView stores the leaders that the coordinator reported.
func (c inCluster) OnClusterView(p *cluster.ClusterView) {
	nodes := make([]sharding.NodeID, c.n.shards+1)
	for shard, s := range p.Shards {
		if int(shard) < len(nodes) {
			nodes[shard] = s.Leader
		}
	}
	c.n.routing.leaders.SetReported(nodes)
}
