package host

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// transferTime bounds how long a node that stops waits in total for its
// leaderships to be transferred.
const transferTime = 3 * time.Second

// transferRest is how long a stopping node waits for the next transfer before
// it gives up.
const transferRest = time.Second

// transferLook is how often a node that stops checks whether any node is left
// to take its leaderships.
const transferLook = 50 * time.Millisecond

// transferLeaders transfers this node's leaderships to other nodes before it stops, if
// there are any that can take them. Callers then notice a short pause, but no
// errors.
func (n *Node) transferLeaders(ctx context.Context) error {
	if len(n.membership.Others()) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	n.membership.member.Drain()
	every := time.NewTicker(transferLook)
	defer every.Stop()
	moved, left := time.Now(), math.MaxInt
	for {
		changed := n.shardRouter.LeadsChanged()
		leading, heirs := 0, false
		for shard, l := range n.shardRouter.Leads() {
			if l.Self {
				leading++
				heirs = heirs || n.hasHeir(sharding.ShardID(shard))
			}
		}
		if leading == 0 {
			return nil
		}
		if leading < left {
			moved, left = time.Now(), leading
		}
		if !heirs || time.Since(moved) > transferRest {
			n.logger.Info("stopping while leading shards, because no other node can take over")
			return nil
		}
		select {
		case <-changed:
		case <-every.C:
			n.membership.member.Kick() // the reply says which other nodes are stopping
		case <-ctx.Done():
			n.logger.Info("stopping while leading shards, because no other node took over in time")
			return nil
		}
	}
}

// hasHeir reports whether another voter of the shard is alive and, as far as
// this node knows, not stopping too.
func (n *Node) hasHeir(shard sharding.ShardID) bool {
	clusterView := n.membership.member.ClusterView()
	return slices.ContainsFunc(n.routing.leaders.Replicas(shard), func(r meta.Replica) bool {
		return r.State == meta.ReplicaVoter && r.Node != n.id.Node && n.peers.IsAlive(r.Node) && !clusterView.Nodes[r.Node].Draining
	})
}
