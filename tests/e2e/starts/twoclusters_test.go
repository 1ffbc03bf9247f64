package starts

import (
	"context"
	"flag"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

var foundings = flag.Int("foundings", 1, "how often a node that was told to found loses its disk")

// A node that is configured or ordered by an operator to bootstrap the cluster
// loses its disk and starts while the other nodes are down. It must not
// bootstrap a second cluster, and must join when the other nodes are back. No
// caller may see two clusters at any time.
func TestLeftoverBootstrapFlagIsIgnored(t *testing.T) {
	testkit.Long(t, "founding")
	if testing.Short() {
		t.Skip("takes a cluster of processes through several starts")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	testkit.AddToCounters(t, c.Client(client.Options{Timeout: testkit.Patience}), 1)
	heard := hear(c)
	for round := range *foundings {
		c.KillAll()
		if err := os.RemoveAll(c.Node(0).DataDir()); err != nil {
			t.Fatal(err)
		}
		if err := c.Node(0).Launch(); err != nil {
			t.Fatal(err)
		}
		if round%2 == 0 {
			c.Await("n1 waits for a cluster", func() bool { return notReady(t, c.Node(0)) != "" })
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			if r, err := c.Node(0).Client(client.Options{Timeout: 2 * time.Second}).Initialize(ctx); err == nil {
				t.Errorf("round %d: n1 hears nobody, and answers %v", round, r)
			}
			cancel()
		}
		// Wait longer than a probe takes while the other nodes are down.
		for until := time.Now().Add(2 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
			if log := c.Node(0).Log(); strings.Contains(log, "bootstrapping a cluster") {
				t.Fatalf("round %d: n1 founds a second cluster:\n%s", round, log)
			}
		}
		for _, i := range rand.Perm(2) {
			if err := c.Node(1 + i).Launch(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond)
		}
		c.Start()
		testkit.CheckCounters(t, c.Client(client.Options{Timeout: testkit.Patience}), 1)
		votes(t, c, 0)
	}
	ids, asked := heard()
	if id := c.Overview(1).GetClusterId(); len(ids) != 1 || !ids[id] {
		t.Errorf("in %d answers the nodes named %v, n2 belongs to %s", asked, ids, id)
	}
	if asked < 100 {
		t.Errorf("the nodes answered %d times: too few to show anything", asked)
	}
}

// hear repeatedly asks all nodes for their cluster until stop is called. stop
// returns the cluster IDs, whether a node of each cluster was ready, and the
// number of answers.
func hear(c *testkit.Cluster) (stop func() (ids map[string]bool, answers int)) {
	ids, answers := map[string]bool{}, 0
	var mu sync.Mutex
	var asking sync.WaitGroup
	done := make(chan struct{})
	for _, n := range c.Nodes() {
		url := n.API() + "/readyz"
		asking.Go(func() {
			asker := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
			for {
				if res, err := asker.Get(url); err == nil {
					res.Body.Close()
					mu.Lock()
					answers++
					if id := res.Header.Get("Hostd-Cluster"); id != "" {
						ids[id] = ids[id] || res.StatusCode == http.StatusOK
					}
					mu.Unlock()
				}
				select {
				case <-time.After(10 * time.Millisecond):
				case <-done:
					return
				}
			}
		})
	}
	return func() (map[string]bool, int) {
		close(done)
		asking.Wait()
		return ids, answers
	}
}

// All nodes may be configured with the expected number of nodes. One of them
// then bootstraps the cluster, the other nodes join it, and no shard starts
// with fewer voters than expected.
func TestAllNodesMayBootstrap(t *testing.T) {
	testkit.Long(t, "long")
	if testing.Short() {
		t.Skip("takes clusters of processes")
	}
	for range 3 {
		c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Flags: []string{"--bootstrap=false", "--bootstrap-expect", "3", "--min-members", "0"}})
		founded := 0
		for _, n := range c.Nodes() {
			founded += strings.Count(n.Log(), "bootstrapping a cluster")
		}
		if o := c.Overview(2); founded != 1 || len(o.GetMembers()) != 3 {
			t.Errorf("%d clusters were founded; n3 sees %v", founded, o)
		} else if o.GetPolicy().GetMinMembers() != 3 {
			t.Errorf("three nodes were expected, and the policy is %v", o.GetPolicy())
		}
		c.KillAll()
	}
}
