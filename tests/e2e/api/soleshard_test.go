package api

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

const soleShards = 5

// bereft chooses a shard, and the node whose replica survives when the other
// two nodes lose their disks. No other shard may lose its majority as a result,
// and at most one of the two nodes may be a voter of the metadata shard.
func bereft(t *testing.T, c *testkit.Cluster) (shard uint32, left int, lost [2]int) {
	t.Helper()
	shards := c.Shards(0)
	for _, s := range shards[1:] {
		v := s.GetVoters()
		for i := range v {
			a, b := v[(i+1)%3], v[(i+2)%3]
			both := 0
			for _, o := range shards {
				if slices.Contains(o.GetVoters(), a) && slices.Contains(o.GetVoters(), b) {
					both++
				}
			}
			if both == 1 {
				return s.GetShardId(), c.Place(v[i]), [2]int{c.Place(a), c.Place(b)}
			}
		}
	}
	t.Fatalf("any two nodes have several shards: %v", shards)
	return
}

// shownShard returns a shard as a node reports it.
func shownShard(c *testkit.Cluster, place int, shard uint32) *clusterv1.Shard {
	for _, s := range c.Shards(place) {
		if s.GetShardId() == shard {
			return s
		}
	}
	return nil
}

// Two of three disks of a shard are lost permanently. The shard serves the data
// of the third replica only after an operator confirms it, and then gets new
// replicas on the other nodes. Data that only the lost replicas had is lost. If
// an operator makes a replica the only replica although the shard has its
// majority, the shard ignores the change and continues.
func TestShardWithoutMajorityIsRecovered(t *testing.T) {
	testkit.Long(t, "long")
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a cluster of processes through more than a surface needs")
	}
	c := testkit.StartCluster(t, 5, testkit.ClusterOptions{Shards: soleShards})
	c.Push("counter")
	shard, left, lost := bereft(t, c)
	survivor := c.Node(left)
	name, arg := "c", fmt.Sprint(shard)
	for i := 0; client.ShardOf("counter", name, soleShards) != shard; i++ {
		name = fmt.Sprint("c", i)
	}
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	add := func(want int) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		defer cancel()
		reply, err := cl.Send(ctx, client.Command{EntityType: "counter", EntityID: name, Name: "add", Data: []byte(`{"amount":1}`)})
		if err != nil || string(reply.Data) != fmt.Sprintf(`{"total":%d}`, want) {
			t.Fatalf("%s of shard %d: %s, %v, want %d", name, shard, reply.Data, err, want)
		}
	}
	add(1)
	leader := shownShard(c, c.Leader(shard), shard)
	c.Await("the replica that will be left has it all", func() bool {
		s := shownShard(c, left, shard)
		return s.GetAppliedIndex() >= leader.GetAppliedIndex()
	})
	c.Kill(left)
	add(2) // acknowledged by the replicas that will be lost
	c.Kill(lost[0])
	c.Kill(lost[1])

	refused(t, survivor, "has a majority of its 3 voters", "--unsafe-shard", arg, "--yes")
	refused(t, survivor, "the metadata shard: see --rebuild-metadata", "--unsafe-shard", "0", "--yes")
	if err := survivor.Launch(); err != nil {
		t.Fatal(err)
	}
	for _, i := range lost {
		if err := os.RemoveAll(c.Node(i).DataDir()); err != nil {
			t.Fatal(err)
		}
	}
	// One node comes back with an empty disk, the other node never comes back.
	if err := c.Node(lost[0]).Launch(); err != nil {
		t.Fatal(err)
	}
	status := func(place int) (out string) {
		for _, m := range c.Overview(left).GetMembers() {
			if m.GetNodeId() == c.Node(place).ID() {
				out = m.GetStatus()
			}
		}
		return out
	}
	c.Await("the cluster has the fresh disk", func() bool {
		s := shownShard(c, left, shard)
		return status(lost[0]) == "up" && s != nil && !slices.Contains(s.GetVoters(), c.Node(lost[0]).ID())
	})
	c.Await("the other is put down", func() bool {
		_, code := survivor.Run("node", "down", c.Node(lost[1]).ID(), "--addr", survivor.API())
		return code == 0
	})
	c.Await("it is down", func() bool { return status(lost[1]) == "down" })
	if s := shownShard(c, left, shard); s.GetLeader() != "" {
		t.Fatalf("a shard without its majority has a leader: %v", s)
	}

	survivor.Stop()
	refused(t, survivor, "Repeat the command with --yes", "--unsafe-shard", arg)
	for range 2 { // running it again changes nothing
		recovered(t, survivor, "--unsafe-shard", arg, "--yes")
	}
	survivor.MustVerify()
	if err := survivor.Launch(); err != nil {
		t.Fatal(err)
	}
	add(2) // the second addition is lost, and the shard serves requests
	c.Await("three vote on the shard", func() bool {
		s := shownShard(c, left, shard)
		return s.GetLeader() != "" && len(s.GetVoters()) == 3 && !slices.Contains(s.GetVoters(), c.Node(lost[1]).ID())
	})
	add(3)

	// The shard has a majority again. A replica that an operator makes the only
	// replica is therefore not accepted, and is replaced.
	survivor.Stop()
	refused(t, survivor, "has a majority of its 3 voters", "--unsafe-shard", arg, "--yes")
	recovered(t, survivor, "--unsafe-shard", arg, "--yes", "--metadata-lost")
	add(4)
	if err := survivor.Launch(); err != nil {
		t.Fatal(err)
	}
	c.Await("the replica is replaced", func() bool {
		s := shownShard(c, left, shard)
		return s.GetLeader() != "" && len(s.GetVoters()) == 3 && len(s.GetStopped()) == 0 && strings.Contains(survivor.Log(), "cannot continue with this node.s replica")
	})
	if err := survivor.AwaitReady(); err != nil {
		t.Errorf("after the replica was replaced: %v", err)
	}
	add(5)
	c.StopAll()
	for i, n := range c.Nodes() {
		if i != lost[1] {
			n.MustVerify()
		}
	}
}

// Two of three nodes are lost permanently, and with them the majority of the
// metadata. The third node continues with its data, and the other two start
// with empty disks.
func TestOneNodeOfThreeIsRecovered(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes a cluster of processes through more than a surface needs")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	testkit.AddToCounters(t, cl, 1)
	c.StopAll()
	for _, i := range []int{1, 2} {
		if err := os.RemoveAll(c.Node(i).DataDir()); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "n1.json")
	left, shards := c.Node(0), []string{"--unsafe-shard", "1,2", "--unsafe-shard", "3"}
	recovered(t, left, "--inspect", "--out", file)
	refused(t, left, "was not found", "--rebuild-metadata", "--from", file)
	refused(t, left, "has a majority of its 3 voters", append(shards, "--yes")...)
	refused(t, left, "Repeat the command with --yes", append(shards, "--metadata-lost")...)
	recovered(t, left, append(shards, "--metadata-lost", "--yes")...)
	recovered(t, left, "--inspect", "--out", file)
	recovered(t, left, "--rebuild-metadata", "--from", file)
	left.MustVerify()
	c.Start()
	testkit.AddToCounters(t, cl, 2)
	rejoined(t, c, 1)
	rejoined(t, c, 2)
	c.Kill(0)
	testkit.AddToCounters(t, cl, 3)
}
