package api

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// The policy of a cluster comes from the flags of the node that bootstraps it,
// regardless of the flags of other nodes, until an operator changes it through
// any node.
func TestPolicyOfBootstrappingNodeApplies(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a cluster of processes through more than a surface needs")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 4})
	status := func(i int) string {
		out, code := c.Node(i).Run("cluster", "status", "--addr", c.Node(i).API())
		if code != 0 {
			t.Fatalf("cluster status: %d, %s", code, out)
		}
		return out
	}
	set := func(i int, args ...string) (string, int) {
		return c.Node(i).Run(slices.Concat([]string{"cluster", "set"}, args, []string{"--addr", c.Node(i).API()})...)
	}
	if out := status(1); !strings.Contains(out, "replication 3, min-members 3, rebalance on, dead-after 5m0s\n") {
		t.Errorf("as it was founded: %s", out)
	}
	if out, code := set(1, "replication", "1"); code != 0 || !strings.Contains(out, "replication 1, min-members 3") {
		t.Fatalf("set replication: %d, %s", code, out)
	}
	single := func() bool {
		for _, s := range c.Shards(2) {
			if s.GetShardId() != 0 && len(s.GetVoters()) != 1 {
				return false
			}
		}
		return true
	}
	c.Await("one voter of each shard", single)
	for _, args := range [][]string{{"min-members", "2"}, {"rebalance", "off"}, {"dead-after", "90s"}} {
		if out, code := set(2, args...); code != 0 {
			t.Errorf("set %s: %d, %s", args, code, out)
		}
	}
	for _, args := range [][]string{{"replication", "4"}, {"replication", "x"}, {"min-members", "0"}, {"rebalance", "maybe"}, {"dead-after", "1s"}, {"dead-after", "0s"}, {"shards", "9"}} {
		if out, code := set(2, args...); code == 0 {
			t.Errorf("set %s: %s", args, out)
		}
	}
	setTogether(t, c)
	const want = "replication 1, min-members 2, rebalance off, dead-after 1m30s\n"
	// The policy survives restarts and does not depend on the flags of the
	// restarted nodes, whichever node is the coordinator.
	c.Restart(c.Leader(0))
	for i := range c.Nodes() {
		c.Await("the policy is known", func() bool { return strings.Contains(status(i), want) })
	}
	c.Await("one voter of each shard, whatever the flags are", single)
}

// setTogether repeatedly changes three parts of the policy through three nodes
// at once, and ends with the values that TestPolicyOfBootstrappingNodeApplies has set.
func setTogether(t *testing.T, c *testkit.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	clients := make([]*client.Client, 3)
	for i := range clients {
		clients[i] = c.Node(i).Client(client.Options{})
	}
	for round := range 20 {
		members, on, after := uint32(1+round%2), round%2 == 0, 90*time.Second+time.Duration(19-round)*time.Second
		changes := []*clusterv1.SetPolicyRequest{{MinMembers: &members}, {Rebalance: &on}, {DeadAfter: durationpb.New(after)}}
		var all sync.WaitGroup
		for i, change := range changes {
			all.Go(func() {
				if _, err := clients[i].SetPolicy(ctx, change); err != nil {
					t.Errorf("round %d, %v: %v", round, change, err)
				}
			})
		}
		all.Wait()
		one := uint32(1)
		p, err := clients[0].SetPolicy(ctx, &clusterv1.SetPolicyRequest{Replication: &one}) // sets no field, so the policy is unchanged
		if err != nil || p.GetMinMembers() != members || p.GetRebalance() != on || p.GetDeadAfter().AsDuration() != after {
			t.Fatalf("round %d: %v, %v; min-members %d, rebalance %v, dead-after %d ms were set at once", round, p, err, members, on, after)
		}
	}
}
