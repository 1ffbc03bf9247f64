package starts

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// unfounded returns a cluster of nodes that are not configured to bootstrap it.
// The nodes with the given indexes run and wait for an operator.
func unfounded(t *testing.T, places ...int) *testkit.Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("takes clusters of processes")
	}
	c := testkit.NewCluster(t, 3, testkit.ClusterOptions{Flags: []string{"--bootstrap=false"}})
	for _, i := range places {
		if err := c.Node(i).Launch(); err != nil {
			t.Fatal(err)
		}
	}
	for _, i := range places {
		c.Await(c.Node(i).ID()+" says what it waits for", func() bool {
			return strings.Contains(notReady(t, c.Node(i)), "'hostd cluster init'")
		})
	}
	return c
}

// Nodes with seeds that are not configured to bootstrap wait for an operator to
// initialize the cluster on one of them.
func TestInitBootstrapsCluster(t *testing.T) {
	c := unfounded(t, 0, 1, 2)
	if _, err := c.Node(1).Client(client.Options{Timeout: time.Second}).Cluster(t.Context()); err == nil {
		t.Error("a node without a cluster describes one")
	}
	out, code := c.Node(1).Run("cluster", "init", "--addr", c.Node(1).API())
	id, said := strings.CutSuffix(strings.TrimPrefix(out, "cluster "), " bootstrapped\n")
	if code != 0 || !said || id == "" {
		t.Fatalf("hostd cluster init: exit code %d, %s", code, out)
	}
	c.Start()
	for _, n := range c.Nodes() {
		if out, code := n.Run("cluster", "init", "--addr", n.API()); code != 0 || out != "cluster "+id+" exists; nothing was done\n" {
			t.Errorf("hostd cluster init on %s of cluster %s: exit code %d, %s", n.ID(), id, code, out)
		}
	}
	if o := c.Overview(0); o.GetClusterId() != id || len(o.GetMembers()) != 3 {
		t.Errorf("n1 sees %v", o)
	}
}

// An operator may order several nodes to initialize at the same time. One of
// them bootstraps the cluster, and all report its ID.
func TestConcurrentInitBootstrapsOnce(t *testing.T) {
	testkit.Long(t, "long")
	for range 3 {
		c := unfounded(t, 0, 1, 2)
		said, errs := make([]*clusterv1.InitializeClusterResponse, 3), make([]error, 3)
		var asked sync.WaitGroup
		for i, n := range c.Nodes() {
			cl := n.Client(client.Options{Timeout: testkit.Patience})
			asked.Go(func() { said[i], errs[i] = cl.Initialize(t.Context()) })
		}
		asked.Wait()
		founded := 0
		for i, r := range said {
			if errs[i] != nil || r.GetClusterId() != said[0].GetClusterId() {
				t.Fatalf("n%d: %v, %v; n1: %v", i+1, r, errs[i], said[0])
			}
			if r.GetBootstrapped() {
				founded++
			}
		}
		c.Start()
		if o := c.Overview(2); founded != 1 || o.GetClusterId() != said[0].GetClusterId() || len(o.GetMembers()) != 3 {
			t.Errorf("%d nodes founded cluster %s; n3 sees %v", founded, said[0].GetClusterId(), o)
		}
		c.KillAll()
	}
}

// A cluster is bootstrapped even if a minority of nodes is unreachable. A node
// that reaches no majority reports the missing nodes, and bootstraps once it
// reaches them.
func TestInitNeedsMajority(t *testing.T) {
	testkit.Long(t, "long")
	c := unfounded(t, 0)
	first := c.Node(0).Client(client.Options{Timeout: 4 * time.Second})
	// The node may send its first answer before it has asked all seeds.
	c.Node(0).Until("n1 says whom it misses", func() error {
		said, err := first.Initialize(t.Context())
		if err == nil {
			t.Fatalf("alone: %v", said)
		}
		if strings.Contains(err.Error(), "2 of 2 seeds do not answer") && strings.Contains(err.Error(), c.Seed(2)) {
			return nil
		}
		return err
	})
	if err := c.Node(1).Launch(); err != nil {
		t.Fatal(err)
	}
	c.Await("the order has stood, and n1 has founded", func() bool {
		return strings.Contains(c.Node(0).Log(), "bootstrapping a cluster")
	})
	// The answer of a waiting node lists the nodes that do not answer.
	other := unfounded(t, 0, 1)
	said, err := other.Node(1).Client(client.Options{Timeout: testkit.Patience}).Initialize(t.Context())
	if missing := other.Seed(2); err != nil || !said.GetBootstrapped() || !slices.Equal(said.GetUnreachableSeeds(), []string{missing}) {
		t.Errorf("two of three: %v, %v; %s is silent", said, err, missing)
	}
	for _, c := range []*testkit.Cluster{c, other} {
		c.Start()
		if o := c.Overview(2); len(o.GetMembers()) != 3 {
			t.Errorf("n3 sees %v", o)
		}
		c.KillAll()
	}
}
