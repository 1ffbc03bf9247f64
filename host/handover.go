package host

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// handOverTime bounds how long a node that stops waits for its leaderships to
// go to others.
const handOverTime = 3 * time.Second

// handOverRest is how long it waits for the next one to go.
const handOverRest = time.Second

// handOverLook is how often a node that stops looks whether anybody is left to
// take what it leads.
const handOverLook = 50 * time.Millisecond

// handOver gives the leaderships of this node away before it stops, as far as
// there is anybody to take them: callers then see a short pause and no error.
func (n *Node) handOver(ctx context.Context) error {
	if len(n.membership.others()) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handOverTime)
	defer cancel()
	n.membership.member.Drain()
	every := time.NewTicker(handOverLook)
	defer every.Stop()
	moved, left := time.Now(), math.MaxInt
	for {
		changed := n.region.LeadsChanged()
		leading, heirs := 0, false
		for shard, l := range n.region.Leads() {
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
		if !heirs || time.Since(moved) > handOverRest {
			n.logger.Info("stopping with leaderships that nobody is there to take")
			return nil
		}
		select {
		case <-changed:
		case <-every.C:
			n.membership.member.Kick() // who else stops is in the answer
		case <-ctx.Done():
			n.logger.Info("stopping with leaderships that nobody took")
			return nil
		}
	}
}

// hasHeir says whether another node that votes on the shard is heard, and is not
// about to stop too as far as this one has been told.
func (n *Node) hasHeir(shard sharding.ShardID) bool {
	clusterView := n.membership.member.ClusterView()
	return slices.ContainsFunc(n.routing.leaders.Replicas(shard), func(r meta.Replica) bool {
		return r.State == meta.ReplicaVoter && r.Node != n.id.Node && n.peers.Heard(r.Node) && !clusterView.Nodes[r.Node].Draining
	})
}
