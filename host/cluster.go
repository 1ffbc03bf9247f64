package host

import (
	"context"
	"fmt"
	"time"

	"github.com/hostd/hostd/journal/raftgroup"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// openCluster brings the node's groups to what the metadata says: a new node
// founds the cluster, places every shard on itself and creates the groups; one
// that was stopped half-way goes on where it was.
func (n *Node) openCluster(ctx context.Context) error {
	loop := n.raft.loop.Load()
	have := make(map[sharding.ShardID]bool)
	statuses, err := loop.Statuses()
	if err != nil {
		return err
	}
	for _, s := range statuses {
		have[s.Shard] = true
	}
	if !have[sharding.MetaShard] {
		err := loop.CreateGroups([]raftgroup.GroupConfig{{
			Shard: sharding.MetaShard, Replica: meta.FounderReplica, Voters: []sharding.ReplicaID{meta.FounderReplica},
		}})
		if err != nil {
			return fmt.Errorf("create the metadata group: %w", err)
		}
	}
	if err := n.metadata.CatchUp(ctx); err != nil {
		return err
	}
	view := n.metadata.View()
	if cluster, ok := view.Cluster(); ok && (cluster.ID != n.id.Cluster || cluster.Shards != n.id.Shards) {
		return fmt.Errorf("%s names cluster %s, the journal holds cluster %s: they do not belong together", identityFile, n.id.Cluster, cluster.ID)
	}
	if _, created := view.Cluster(); !created {
		if err := n.found(ctx); err != nil {
			return err
		}
	}
	if err := n.createMissing(have); err != nil {
		return err
	}
	if err := n.bindings.refresh(ctx); err != nil {
		n.logger.Error("not every active module could be loaded; its entity types are not served", "error", err)
	}
	n.caughtUp.Store(true)
	return nil
}

// found writes the cluster's first metadata: its name, this member, and a
// place for every shard.
func (n *Node) found(ctx context.Context) error {
	cluster := meta.Cluster{ID: n.id.Cluster, Format: dataFormat, Shards: n.id.Shards, CreatedAt: time.Now().UnixNano()}
	founder := meta.Member{Node: n.id.Node, Address: n.Addr(), Status: meta.StatusUp}
	if _, err := n.metadata.Do(ctx, meta.CreateCluster(cluster, founder)); err != nil {
		return fmt.Errorf("create the cluster: %w", err)
	}
	return nil
}

// createMissing creates the replicas that the metadata places here and that
// the log does not hold.
func (n *Node) createMissing(have map[sharding.ShardID]bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var ask []meta.PlaceOn
	for s := sharding.ShardID(1); s <= sharding.ShardID(n.id.Shards); s++ {
		if !have[s] {
			ask = append(ask, meta.PlaceOn{Shard: s, Nodes: []sharding.NodeID{n.id.Node}})
		}
	}
	if len(ask) == 0 {
		return nil
	}
	res, err := n.metadata.Do(ctx, meta.Place(ask...))
	if err != nil {
		return fmt.Errorf("place the shards: %w", err)
	}
	var groups []raftgroup.GroupConfig
	for _, p := range res.Placements {
		g := raftgroup.GroupConfig{Shard: p.Shard}
		for _, r := range p.Replicas {
			g.Voters = append(g.Voters, r.ID)
			if r.Node == n.id.Node {
				g.Replica = r.ID
			}
		}
		groups = append(groups, g)
	}
	if err := n.raft.loop.Load().CreateGroups(groups); err != nil {
		return fmt.Errorf("create the shards' groups: %w", err)
	}
	return nil
}
