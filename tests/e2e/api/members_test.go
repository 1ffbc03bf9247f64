package api

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// memberAt returns a member as a node lists it, or nil if the node does not
// list it.
func memberAt(c *testkit.Cluster, node int, id string) *clusterv1.Member {
	for _, m := range c.Overview(node).GetMembers() {
		if m.GetNodeId() == id {
			return m
		}
	}
	return nil
}

// holds returns how many data shards have a replica on a node, according to
// another node.
func holds(c *testkit.Cluster, node int, id string) int {
	n := 0
	for _, s := range c.Shards(node) {
		if s.GetShardId() != 0 && (slices.Contains(s.GetVoters(), id) || slices.Contains(s.GetLearners(), id)) {
			n++
		}
	}
	return n
}

// A fourth node joins, receives its share of the shards, and gives it back when
// it leaves.
func TestNodeJoinsAndLeaves(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a cluster of processes through more than a surface needs")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 8})
	c.Push("counter")
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	testkit.AddToCounters(t, cl, 1)
	n := c.Add()
	c.Await("n4 has its share", func() bool { return holds(c, 0, "n4") >= 4 && leads(c, 0, "n4") >= 1 })
	testkit.AddToCounters(t, n.Client(client.Options{Timeout: testkit.Patience}), 2)

	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	out, code := c.Node(0).Run("node", "leave", "n4", "--addr", c.Node(0).API(), "--timeout", "60s")
	if code != 0 || !strings.Contains(out, "has left the cluster") {
		t.Fatalf("node leave: exit code %d, %s", code, out)
	}
	c.Await("every node knows that n4 has left", func() bool { return memberAt(c, 1, "n4") == nil && holds(c, 1, "n4") == 0 })
	c.Stop(3)
	for name, want := range map[string]int{"n4": 0, "n44": 1} { // n4 has left; n44 never existed
		if out, code := c.Node(1).Run("node", "leave", name, "--addr", c.Node(1).API()); code != want || want == 1 && !strings.Contains(out, "no such node") {
			t.Errorf("node leave %s: exit code %d, %s", name, code, out)
		}
	}
	testkit.AddToCounters(t, cl, 3)
	for _, s := range c.Shards(0) {
		if len(s.GetVoters()) != 3 {
			t.Errorf("after n4 left: %v", s)
		}
	}
	if err := cl.Down(ctx, "n4"); !client.IsNotFound(err) {
		t.Errorf("down of a node that has left: %v", err)
	}
}

// A drained node leads nothing, also while it is stopped, and leads again after
// a restart. A node that is marked down is not replaced if no other node can
// take its replicas, and can come back.
func TestNodeIsDrainedAndPutDown(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a cluster of processes through more than a surface needs")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 6})
	c.Push("counter")
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	testkit.AddToCounters(t, cl, 1)
	out, code := c.Node(0).Run("node", "drain", "n2", "--addr", c.Node(0).API(), "--timeout", "60s")
	if code != 0 || !strings.Contains(out, "can be stopped") {
		t.Fatalf("node drain: exit code %d, %s", code, out)
	}
	if n := leads(c, 0, "n2"); n != 0 {
		t.Errorf("n2 leads %d shards after the drain", n)
	}
	c.Stop(1)
	testkit.AddToCounters(t, cl, 2)
	c.Node(1).Start()
	c.AwaitSpread()
	testkit.AddToCounters(t, cl, 3)

	c.Kill(1)
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	if err := cl.Down(ctx, "n2"); err != nil {
		t.Fatal(err)
	}
	c.Await("n2 is down", func() bool { m := memberAt(c, 0, "n2"); return m.GetStatus() == "down" && !m.GetReachable() })
	testkit.AddToCounters(t, cl, 4)
	c.Node(1).Start()
	c.Await("n2 is up again", func() bool { return memberAt(c, 0, "n2").GetStatus() == "up" })
	rejoined(t, c, 1)
	testkit.AddToCounters(t, c.Node(1).Client(client.Options{Timeout: testkit.Patience}), 5)
}

// A proxy accepts every command and stores no shard.
func TestProxy(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a cluster of processes through more than a surface needs")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	n := c.Add("--roles", "proxy")
	testkit.AddToCounters(t, n.Client(client.Options{Timeout: testkit.Patience}), 1)
	m := memberAt(c, 0, "n4")
	if m == nil || !slices.Equal(m.GetRoles(), []string{"proxy"}) || holds(c, 0, "n4") != 0 || leads(c, 0, "n4") != 0 {
		t.Errorf("the proxy is listed as %v, holds %d shards", m, holds(c, 0, "n4"))
	}
	leader := c.Leader(1)
	c.Kill(leader)
	testkit.AddToCounters(t, n.Client(client.Options{Timeout: testkit.Patience}), 2)
	// Two of the three storage nodes are running, which is enough to activate a
	// module. The stopped proxy does not count.
	n.Kill()
	if _, err := c.Client(client.Options{Timeout: testkit.Patience}).Upload(t.Context(), testkit.BuildExample(t, "account"), true); err != nil {
		t.Errorf("a module without the proxy: %v", err)
	}
}

// A second node with an ID that is in use is rejected, and the first node
// continues.
func TestNodeIDInUseIsRejected(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a cluster of processes through more than a surface needs")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 1})
	seed := strings.TrimPrefix(c.Node(0).API(), "http://")
	double := testkit.NewNode(t, testkit.NodeOptions{ID: "n2", Shards: 1, Flags: []string{"--seeds", seed}})
	if err := double.TryStart(); err == nil {
		t.Fatal("two nodes run under one name")
	}
	if log := double.Log(); !strings.Contains(log, "node id is already in use") || !strings.Contains(log, "different node-id") {
		t.Errorf("the log does not say why:\n%s", log)
	}
	c.AwaitSpread()
}
