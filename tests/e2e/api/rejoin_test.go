package api

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

func listCounters() *entityv1.ListEntitiesRequest {
	return &entityv1.ListEntitiesRequest{EntityType: "counter", PageSize: 1000}
}

// The leader of an entity's shard dies and stays down. Other nodes take over
// its shards. The node then comes back as a follower with all data.
func TestLeaderDies(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a cluster of processes through more than a surface needs")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	testkit.AddToCounters(t, cl, 1)
	dead := c.Leader(1)
	c.Kill(dead)
	testkit.AddToCounters(t, cl, 2)
	if c.Node(dead).Running() {
		t.Fatal("the dead node runs")
	}
	alive := (dead + 1) % 3
	c.Await("the others say that it cannot be reached", func() bool {
		for _, m := range c.Overview(alive).GetMembers() {
			if m.GetNodeId() == c.Node(dead).ID() {
				return !m.GetReachable() && m.GetStatus() == "up"
			}
		}
		return false
	})
	c.Node(dead).Start()
	c.AwaitSpread()
	testkit.AddToCounters(t, c.Node(dead).Client(client.Options{Timeout: testkit.Patience}), 3)
}

// All nodes stop at once, gracefully or not, and come back with all data.
func TestAllNodesRestart(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a cluster of processes through more than a surface needs")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	testkit.AddToCounters(t, cl, 1)
	cluster := c.Overview(0)
	for want, end := range []func(){c.StopAll, c.KillAll} {
		end()
		for _, n := range c.Nodes() {
			n.MustVerify()
		}
		c.Start()
		testkit.AddToCounters(t, cl, want+2)
	}
	for i := range c.Nodes() {
		if o := c.Overview(i); len(o.GetMembers()) != 3 || o.GetShardCount() != cluster.GetShardCount() {
			t.Errorf("after the restarts: %v", o)
		}
	}
}

// A node with an empty directory rejoins under its ID and receives copies.
func TestWipedNodeRejoins(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a cluster of processes through more than a surface needs")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	testkit.AddToCounters(t, cl, 1)
	// The killed node is not the first node, which is configured to bootstrap a
	// cluster.
	c.Kill(2)
	if err := os.RemoveAll(c.Node(2).DataDir()); err != nil {
		t.Fatal(err)
	}
	testkit.AddToCounters(t, cl, 2)
	c.Node(2).Start()
	rejoined(t, c, 2)
	testkit.AddToCounters(t, c.Node(2).Client(client.Options{Timeout: testkit.Patience}), 3)
	// The copies are enough to serve when another node is down.
	c.Kill(1)
	testkit.AddToCounters(t, c.Node(2).Client(client.Options{Timeout: testkit.Patience}), 4)
}

// rejoined waits until a node is a voter of every shard again.
func rejoined(t *testing.T, c *testkit.Cluster, place int) {
	t.Helper()
	id := c.Node(place).ID()
	c.Await(id+" votes in every shard", func() bool {
		shards := c.Shards(place)
		for _, s := range shards {
			if s.GetShardId() != 0 && !strings.Contains(strings.Join(s.GetVoters(), ","), id) || len(s.GetVoters()) != 3 {
				return false
			}
		}
		return len(shards) > 1
	})
}

// A node whose log is damaged does not serve from it: its data is moved aside,
// not deleted, and is rebuilt from the other nodes. The node does so by itself
// if the other nodes permit it; otherwise an operator must do it.
func TestDamagedNodeRejoins(t *testing.T) {
	testkit.Long(t, "long")
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a cluster of processes through more than a surface needs")
	}
	for _, how := range []string{"by itself", "by hand", "interrupted"} {
		t.Run(how, func(t *testing.T) { damagedNodeRejoins(t, how) })
	}
}

func damagedNodeRejoins(t *testing.T, how string) {
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	testkit.AddToCounters(t, cl, 1)
	n := c.Node(1)
	c.Stop(1)
	old := replicasOn(t, n)
	testkit.AddToCounters(t, cl, 2)
	damageLog(t, n.DataDir())
	refused(t, n, "the node's data is damaged", "--inspect", "--out", filepath.Join(t.TempDir(), "n2.json"))
	switch how {
	case "by hand":
		if out, code := n.Run("recover", n.DataDir(), "--rejoin"); code != 0 {
			t.Fatalf("recover --rejoin: exit code %d\n%s", code, out)
		}
	case "interrupted": // part of the data was moved, and the next start continues
		moving := filepath.Join(n.DataDir(), "damaged-20260101T000000Z.moving")
		if err := os.Mkdir(moving, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(n.DataDir(), "wal"), filepath.Join(moving, "wal")); err != nil {
			t.Fatal(err)
		}
	}
	n.Start()
	kept, err := filepath.Glob(filepath.Join(n.DataDir(), "damaged-*", "wal", "*.wal"))
	if err != nil || len(kept) == 0 {
		t.Errorf("the damaged log is not kept: %v, %v", kept, err)
	}
	rejoined(t, c, 1)
	testkit.AddToCounters(t, n.Client(client.Options{Timeout: testkit.Patience}), 3)
	c.Kill(0)
	testkit.AddToCounters(t, n.Client(client.Options{Timeout: testkit.Patience}), 4)
	c.Kill(1)
	fresh := replicasOn(t, n)
	if len(fresh) != len(old) {
		t.Errorf("replicas %v, it had %v", fresh, old)
	}
	for _, id := range fresh {
		if id <= slices.Max(old) {
			t.Errorf("replica %d is not new: it had %v", id, old)
		}
	}
}

// replicasOn returns the IDs of a stopped node's replicas.
func replicasOn(t *testing.T, n *testkit.Node) (ids []uint64) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "remains.json")
	recovered(t, n, "--inspect", "--out", name)
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Replicas []struct{ Replica uint64 }
	}
	if err := json.Unmarshal(data, &file); err != nil || len(file.Replicas) == 0 {
		t.Fatalf("%v: %s", err, data)
	}
	for _, r := range file.Replicas {
		ids = append(ids, r.Replica)
	}
	return ids
}

// damageLog changes a byte in the first record of a node's log.
func damageLog(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("no log in %s: %v", dir, err)
	}
	f, err := os.OpenFile(logs[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const at = 4096 + 100 // after the segment's header
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
}
