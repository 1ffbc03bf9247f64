package starts

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// A data directory is replaced by a copy from several incarnations ago, which
// lacks the votes and acknowledgments that the node has made since. The node
// must not vote with this copy. Data that was acknowledged with or without the
// node survives, and the node gets new replicas from the other nodes.
func TestOldCopyOfDirectoryDoesNotVote(t *testing.T) {
	testkit.Long(t, "long")
	if testing.Short() {
		t.Skip("takes a cluster of processes through several starts")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	testkit.AddToCounters(t, c.Client(client.Options{Timeout: testkit.Patience}), 1)
	c.Stop(0)
	copied := t.TempDir() + "/old"
	if err := os.CopyFS(copied, os.DirFS(c.Node(0).DataDir())); err != nil {
		t.Fatal(err)
	}
	c.Node(0).Start()
	c.AwaitSpread()
	c.Stop(2)
	testkit.AddToCounters(t, c.Client(client.Options{Timeout: testkit.Patience}), 2) // data that only n1 and n2 have
	c.KillAll()
	if err := os.RemoveAll(c.Node(0).DataDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(c.Node(0).DataDir(), os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 2} {
		if err := c.Node(i).Launch(); err != nil {
			t.Fatal(err)
		}
	}
	c.Await("n1 says that its disk went back in time", func() bool {
		return strings.Contains(notReady(t, c.Node(0)), "outdated copy")
	})
	// n1 and n3 would be a majority of the voters, but must not act as a
	// majority.
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
	defer cancel()
	for _, i := range []int{0, 2} {
		cl, err := client.New([]string{c.Node(i).API()}, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := cl.Send(ctx, client.Command{EntityType: "counter", EntityID: "c0", Name: "add", Data: []byte(`{"amount":1}`)})
		if err == nil {
			t.Errorf("%s acknowledged %s without those who know of what was acknowledged", c.Node(i).ID(), reply.Data)
		}
		cl.Close()
	}
	if t.Failed() {
		t.FailNow()
	}
	if err := c.Node(1).Launch(); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes() {
		if err := n.AwaitReady(); err != nil {
			t.Fatalf("%s: %v", n.ID(), err)
		}
	}
	c.AwaitSpread()
	testkit.CheckCounters(t, c.Client(client.Options{Timeout: testkit.Patience}), 2)
	votes(t, c, 0)
	// The data on n1 is complete now.
	c.Kill(1)
	testkit.AddToCounters(t, c.Client(client.Options{Timeout: testkit.Patience}), 3)
}

// A data directory is replaced by a copy that was made while the node ran, such
// as a volume snapshot, and the node has not started since. No other node knows a
// later start, so the copy passes the stale-disk check, but it lacks entries that
// the node acknowledged. The replicas must find that out from their leaders, stop
// and be replaced.
func TestReplicasFromCopyOfRunningNodeAreReplaced(t *testing.T) {
	testkit.Long(t, "long")
	if testing.Short() {
		t.Skip("takes a cluster of processes through several starts")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	testkit.AddToCounters(t, c.Client(client.Options{Timeout: testkit.Patience}), 1)
	c.AwaitSpread()
	copied := t.TempDir() + "/snapshot"
	c.Pause(0)
	if err := os.CopyFS(copied, os.DirFS(c.Node(0).DataDir())); err != nil {
		t.Fatal(err)
	}
	c.Continue(0)
	c.AwaitSpread()
	testkit.AddToCounters(t, c.Client(client.Options{Timeout: testkit.Patience}), 2)
	c.Kill(0)
	if err := os.RemoveAll(c.Node(0).DataDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(c.Node(0).DataDir(), os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	if err := c.Node(0).Launch(); err != nil {
		t.Fatal(err)
	}
	c.Await("n1 notices that entries are missing", func() bool {
		return strings.Contains(c.Node(0).Log(), "the log lacks entries that this replica acknowledged")
	})
	if err := c.Node(0).AwaitReady(); err != nil {
		t.Fatal(err)
	}
	c.AwaitSpread()
	// The data on n1 is complete now, also without n2.
	c.Kill(1)
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	testkit.CheckCounters(t, cl, 2)
	testkit.AddToCounters(t, cl, 3)
}

// If all nodes of a cluster start at once, they vote without delay, also after
// kills and if one node is down.
func TestStartsAreAttestedWithoutDelay(t *testing.T) {
	testkit.Long(t, "long")
	if testing.Short() {
		t.Skip("takes a cluster of processes through several starts")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	for want := 1; want <= 3; want++ {
		c.KillAll()
		if want == 2 {
			for _, i := range []int{0, 2} {
				if err := c.Node(i).Launch(); err != nil {
					t.Fatal(err)
				}
			}
		} else {
			c.Start()
		}
		testkit.AddToCounters(t, c.Client(client.Options{Timeout: testkit.Patience}), want)
	}
	for i := range c.Nodes() {
		if log := c.Node(i).Log(); strings.Contains(log, "outdated copy") {
			t.Errorf("%s was taken for an old copy:\n%s", c.Node(i).ID(), log)
		}
	}
}
