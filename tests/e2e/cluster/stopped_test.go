package cluster

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// stopsOnFile is a planted fault: a file makes the node stop its replica of a
// shard.
const stopsOnFile = "e2e/cluster/planted/stop-on-file.txt"

// stopReplica makes the node stop its replica of shard 1 at the next entry.
func stopReplica(t *testing.T, n *testkit.Node, why string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(n.DataDir(), "stop-1"), []byte(why), 0o600); err != nil {
		t.Fatal(err)
	}
}

// readyz returns the response of the node's /readyz.
func readyz(t *testing.T, n *testkit.Node) (status int, text string) {
	t.Helper()
	res, err := http.Get(n.API() + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(body)
}

// shownStopped returns the stopped replicas of shard 1 that a node reports.
func shownStopped(c *testkit.Cluster, i int) (out string) {
	for _, s := range c.Shards(i) {
		if s.GetShardId() == 1 {
			for _, r := range s.GetStopped() {
				out += r.GetNodeId() + " " + r.GetReason()
			}
		}
	}
	return out
}

func leads(c *testkit.Cluster, place int) func() bool {
	return func() bool { return c.Leader(1) == place }
}

// TestStoppedReplicaDoesNotLead stops the leader's replica on n1 at an entry
// that it cannot read. Commands continue on another node. Then n2 is killed,
// and n3 leads with the vote and the log of n1, which does not lead. No command
// may fail.
func TestStoppedReplicaDoesNotLead(t *testing.T) {
	testkit.Long(t, "long")
	c := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Planted: []string{stopsOnFile}})
	c.Push("counter")
	caller := c.Client(client.Options{Timeout: testkit.Patience})
	c.AwaitSpread()
	if err := caller.MoveShard(t.Context(), 1, "n1"); err != nil {
		t.Fatal(err)
	}
	ps := startProbes(t, caller, 3, 20*time.Millisecond)
	c.Await("n1 leads", leads(c, 0))
	stopReplica(t, c.Node(0), "unsupported")
	c.Await("another node leads", func() bool { at := c.Leader(1); return at > 0 })
	for i := range nodes {
		c.Await("the stop is shown", func() bool { return shownStopped(c, i) == "n1 unsupported" })
	}
	if status, text := readyz(t, c.Node(0)); status != http.StatusServiceUnavailable || !strings.Contains(text, "have stopped") || !strings.Contains(text, "1 (unsupported)") {
		t.Errorf("/readyz of n1: %d %s", status, text)
	}
	if err := caller.MoveShard(t.Context(), 1, "n2"); err != nil {
		t.Fatal(err)
	}
	c.Await("n2 leads", leads(c, 1))
	now := ps.h.Now()
	c.Await("every probe is answered", func() bool { return ps.allAnswered(now) })
	c.Kill(1)
	c.Await("n3 leads", func() bool {
		for _, s := range c.Shards(2) {
			if s.GetShardId() == 1 {
				return s.GetLeader() == "n3"
			}
		}
		return false
	})
	now = ps.h.Now()
	c.Await("every probe is answered without n2", func() bool { return ps.allAnswered(now) })
	ps.noneFailed()
	c.Node(1).Start()
	ps.end(caller)
}

// TestStoppedReplicaIsReplaced damages the leader of a shard. The other
// replicas must continue at once. The node must get a new replica without an
// operator, and the new replica must be able to lead. No command may fail, and
// all replicas must be equal at the end.
func TestStoppedReplicaIsReplaced(t *testing.T) {
	testkit.Long(t, "long")
	c := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Planted: []string{stopsOnFile}})
	c.Push("counter")
	caller := c.Client(client.Options{Timeout: testkit.Patience})
	c.AwaitSpread()
	if err := caller.MoveShard(t.Context(), 1, "n1"); err != nil {
		t.Fatal(err)
	}
	ps := startProbes(t, caller, 3, 20*time.Millisecond)
	c.Await("n1 leads", leads(c, 0))
	stopReplica(t, c.Node(0), "damaged")
	c.Await("n1 is not ready", func() bool {
		status, text := readyz(t, c.Node(0))
		return status == http.StatusServiceUnavailable && strings.Contains(text, "1 (damaged)")
	})
	c.Await("another node leads", func() bool { at := c.Leader(1); return at > 0 })
	c.Await("the replica is replaced", func() bool {
		status, _ := readyz(t, c.Node(0))
		for i := range nodes {
			if shownStopped(c, i) != "" {
				return false
			}
		}
		return status == http.StatusOK && strings.Contains(c.Node(0).Log(), "removed replicas")
	})
	c.AwaitSpread()
	if err := caller.MoveShard(t.Context(), 1, "n1"); err != nil {
		t.Fatal(err)
	}
	c.Await("n1 leads again", leads(c, 0))
	ps.noneFailed()
	ps.end(caller)
	awaitLevel(c)
	c.StopAll()
	if compared := checkReplicas(t, c, 3, ps.h); compared == 0 {
		t.Error("no records to compare")
	}
}

// TestStoppedSingleReplicaRejectsRequests checks that requests to a shard whose only
// replica is stopped are rejected at once with the reason, and that the node's
// other shards continue.
func TestStoppedSingleReplicaRejectsRequests(t *testing.T) {
	testkit.Long(t, "long")
	c := testkit.StartCluster(t, 1, testkit.ClusterOptions{Planted: []string{stopsOnFile}})
	c.Push("counter")
	caller := c.Client(client.Options{Timeout: testkit.Patience})
	send := func(shard int, timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		_, err := caller.Send(ctx, client.Command{EntityType: "counter", EntityID: inShard("stopped", "counter", shard, 3), Name: "add", Data: []byte(`{"amount":1}`)})
		return err
	}
	for shard := 1; shard <= 3; shard++ {
		if err := send(shard, testkit.Patience); err != nil {
			t.Fatal(err)
		}
	}
	stopReplica(t, c.Node(0), "damaged")
	c.Await("the shard refuses by name", func() bool {
		err := send(1, time.Second)
		return err != nil && strings.HasPrefix(err.Error(), "unavailable: ") && strings.Contains(err.Error(), "has stopped (damaged)")
	})
	for shard := 2; shard <= 3; shard++ {
		if err := send(shard, testkit.Patience); err != nil {
			t.Errorf("shard %d: %v", shard, err)
		}
	}
}
