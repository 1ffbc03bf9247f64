package cluster

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestMembersComeAndGo lets nodes join, die and be replaced, come back, leave
// and lose their data, under load. No call may fail.
func TestMembersComeAndGo(t *testing.T) {
	testkit.Long(t, "long")
	cluster := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Shards: shards})
	cluster.Push("counter")
	c := cluster.Client(client.Options{Timeout: testkit.Patience})
	ps := startProbes(t, c, shards, moveRest)
	began := time.Now()
	step := func(what string) {
		t.Helper()
		at := ps.h.Now()
		cluster.Await("every probe is answered", func() bool { return ps.allAnswered(at) })
		ps.noneFailed()
		t.Logf("%s after %s", what, time.Since(began).Round(time.Millisecond))
		began = time.Now()
	}
	step("load")

	fourth := cluster.Add()
	cluster.Await("the fourth node has its share", func() bool { return holds(cluster, fourth, 9, 2) })
	step("a fourth node has its share")

	dead := cluster.Node(2)
	dead.Kill()
	if err := c.Down(t.Context(), dead.ID()); err != nil {
		t.Fatalf("take %s for dead: %v", dead.ID(), err)
	}
	cluster.Await("the dead node is replaced", func() bool {
		return !slices.ContainsFunc(cluster.Shards(0)[1:], func(s *clusterv1.Shard) bool {
			return len(s.GetVoters()) != 3 || slices.Contains(s.GetVoters(), dead.ID()) || s.GetLeader() == "" || s.GetLeader() == dead.ID()
		})
	})
	step("a dead node is replaced")

	dead.Start()
	cluster.Await("the replaced node has its share", func() bool { return holds(cluster, dead, 9, 2) })
	step("it is back as a new one and has its share")

	if err := c.Leave(t.Context(), fourth.ID()); err != nil {
		t.Fatalf("let %s leave: %v", fourth.ID(), err)
	}
	cluster.Await("the fourth node has left", func() bool {
		o := cluster.Overview(0)
		return o != nil && !slices.ContainsFunc(o.GetMembers(), func(m *clusterv1.Member) bool { return m.GetNodeId() == fourth.ID() })
	})
	fourth.Stop()
	cluster.AwaitSpread()
	step("the fourth node has left")

	wiped := cluster.Node(1)
	wiped.Kill()
	if err := os.RemoveAll(wiped.DataDir()); err != nil {
		t.Fatal(err)
	}
	wiped.Start()
	cluster.AwaitSpread()
	step("a node that lost its data is back")

	t.Logf("%d events, each once", ps.end(c))
	awaitLevel(cluster)
	cluster.StopAll()
	compared := checkReplicas(t, cluster, shards, ps.h)
	t.Logf("%d records alike on all replicas", compared)
}

// holds reports whether a node has the given number of replicas and leads the
// given number of shards.
func holds(cluster *testkit.Cluster, n *testkit.Node, replicas, leads int) bool {
	held, led := 0, 0
	for _, s := range cluster.Shards(0) {
		if s.GetShardId() > 0 && slices.Contains(s.GetVoters(), n.ID()) {
			held++
		}
		if s.GetShardId() > 0 && s.GetLeader() == n.ID() {
			led++
		}
	}
	return held >= replicas-1 && led >= leads
}

// TestAllNodesRestartWithData kills all nodes at once and starts them in
// several orders, one shortly after the other. All acknowledged data must be
// back, in one cluster. The number of orders that it tries is half the number
// of faults.
func TestAllNodesRestartWithData(t *testing.T) {
	testkit.Long(t, "long")
	w := begin(t)
	orders := [][]int{{2, 0, 1}, {1, 2, 0}, {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {2, 1, 0}}
	for i, order := range orders[:min(len(orders), max(2, *faults/2))] {
		w.goesOn(100)
		w.KillAll()
		for _, place := range order {
			if err := w.Node(place).Launch(); err != nil {
				t.Fatal(err)
			}
			w.pause(time.Second)
		}
		w.Start()
		w.done[fmt.Sprintf("all die, %v", order)]++
		if i < len(orders)-1 {
			w.load.NextEntities()
		}
	}
	w.end()
}
