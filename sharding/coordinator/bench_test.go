package coordinator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
	"github.com/hostd/hostd/sharding/meta"
)

// BenchmarkStep measures a step with nothing to do in a balanced cluster in
// which every node has just reported.
func BenchmarkStep(b *testing.B) {
	for _, size := range []struct{ nodes, shards int }{{3, 256}, {3, 4096}, {20, 4096}, {100, 4096}} {
		b.Run(fmt.Sprintf("%dx%d", size.nodes, size.shards), func(b *testing.B) {
			c, in, _ := balanced(size.nodes, size.shards)
			if plan := c.Step(in); len(plan.Commands)+len(plan.Transfers) > 0 {
				b.Fatalf("there is something to do: %s, %d transfers", plan.Commands, len(plan.Transfers))
			}
			b.ReportAllocs()
			for b.Loop() {
				for i := range in.Reports {
					in.Reports[i].Seq++
				}
				c.Step(in)
			}
		})
	}
}

// balanced returns a balanced cluster with three replicas per shard.
func balanced(nodes, shards int) (*coordinator.Coordinator, coordinator.Input, *meta.State) {
	return balancedOf(nodes, shards, 3)
}

// balancedOf is like balanced, with the given number of replicas per shard. If
// it is 0, no shard is placed.
func balancedOf(nodes, shards, replicas int) (*coordinator.Coordinator, coordinator.Input, *meta.State) {
	s := meta.New()
	cluster := meta.Cluster{ID: "c", Format: 1, Shards: uint32(shards)}
	members := make([]sharding.NodeID, nodes)
	index := uint64(1)
	apply := func(command []byte) {
		s.Apply(index, command)
		index++
	}
	for i := range members {
		members[i] = sharding.NodeID(fmt.Sprintf("n%d", i+1))
		m := meta.Member{Node: members[i], Address: "a", Status: meta.StatusUp, Disk: "1", Incarnation: 1}
		if i == 0 {
			apply(meta.CreateCluster(cluster, m))
		} else {
			apply(meta.PutMember(m))
		}
	}
	var place []meta.PlaceOn
	for i := range shards * min(replicas, 1) {
		at := first(i, nodes)
		var on []sharding.NodeID
		for r := range replicas {
			on = append(on, members[(at+r)%nodes])
		}
		place = append(place, meta.PlaceOn{Shard: sharding.ShardID(i + 1), Nodes: on})
		if len(place) == 512 || i == shards-1 {
			apply(meta.Place(place...))
			place = nil
		}
	}
	in := coordinator.Input{Now: time.Unix(100, 0), View: s.View(), Reachable: map[sharding.NodeID]bool{}}
	for i, m := range members {
		in.Reachable[m] = true
		r := coordinator.Report{Node: m, Incarnation: 1, Seq: 1}
		for j := range shards * min(replicas, 1) {
			if first(j, nodes) != i {
				continue
			}
			p, _ := in.View.Placement(sharding.ShardID(j + 1))
			match := map[sharding.ReplicaID]uint64{}
			for _, id := range p.First {
				match[id] = 100
			}
			r.Shards = append(r.Shards, coordinator.ShardReport{
				Shard: p.Shard, Replica: p.First[0], Term: 1, Leader: true, Commit: 100, Applied: 100, Last: 100, Voters: p.First, Match: match,
			})
		}
		in.Reports = append(in.Reports, r)
	}
	return coordinator.New(coordinator.Options{}), in, s
}

// first returns the index of the node that leads shard i; the next two nodes
// hold its other replicas. The numbers of replicas and of leaderships per node
// differ by at most one.
func first(i, nodes int) int {
	if nodes%3 == 0 {
		return i % nodes
	}
	return 3 * i % nodes
}

// BenchmarkStepAfterNodeDeath measures a step in a cluster with a dead node,
// whose shards are waiting to be rebuilt elsewhere.
func BenchmarkStepAfterNodeDeath(b *testing.B) {
	for _, nodes := range []int{5, 100} {
		b.Run(fmt.Sprintf("%dx4096", nodes), func(b *testing.B) {
			c, in, s := balanced(nodes, 4096)
			dead := in.Reports[nodes-1].Node
			in.Reports, in.Reachable[dead] = in.Reports[:nodes-1], false
			s.Apply(1_000_000, meta.SetStatus(dead, 1, meta.StatusDown))
			in.View = s.View()
			if plan := c.Step(in); len(plan.Commands) == 0 {
				b.Fatal("nothing is built")
			}
			b.ReportAllocs()
			for b.Loop() {
				for i := range in.Reports {
					in.Reports[i].Seq++
				}
				c.Step(in)
			}
		})
	}
}

// BenchmarkStepPlacement measures the step that places all shards of a new
// cluster.
func BenchmarkStepPlacement(b *testing.B) {
	for _, nodes := range []int{3, 100} {
		b.Run(fmt.Sprintf("%dx4096", nodes), func(b *testing.B) {
			_, in, _ := balancedOf(nodes, 4096, 0)
			for b.Loop() {
				if plan := coordinator.New(coordinator.Options{}).Step(in); len(plan.Commands) == 0 {
					b.Fatal("nothing is placed")
				}
			}
		})
	}
}

// BenchmarkStepLowerReplication measures the step that removes two replicas of
// each shard.
func BenchmarkStepLowerReplication(b *testing.B) {
	for _, nodes := range []int{5, 100} {
		b.Run(fmt.Sprintf("%dx4096", nodes), func(b *testing.B) {
			c, in, _ := balancedOf(nodes, 4096, 5)
			if plan := c.Step(in); len(plan.Commands) < 4096 {
				b.Fatalf("%d commands for 4096 shards", len(plan.Commands))
			}
			for b.Loop() {
				for i := range in.Reports {
					in.Reports[i].Seq++
				}
				c.Step(in)
			}
		})
	}
}
