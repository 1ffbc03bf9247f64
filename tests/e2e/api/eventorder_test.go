package api

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/tests/support/testkit"
)

// Any node accepts administrative operations, and their effects are visible on
// any other node.
func TestOperationsAreVisibleOnEveryNode(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 6})
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	watch, err := clusterOf(c.Node(1)).WatchCluster(ctx, connect.NewRequest(&clusterv1.WatchClusterRequest{}))
	if err != nil || !watch.Receive() {
		t.Fatal(err, watch.Err())
	}
	defer watch.Close()
	for k, to := range []string{"n2", "n3", "n1"} {
		cl := c.Node(k).Client(client.Options{})
		if err := cl.MoveShard(ctx, 1, to); err != nil {
			t.Fatalf("move to %s, asked at %s: %v", to, c.Node(k).ID(), err)
		}
		for i := range c.Nodes() {
			c.Await("every node sees the move", func() bool { return leaderAt(c, i, 1) == to })
		}
	}
	c.Await("n3 leads something", func() bool { return leads(c, 0, "n3") > 0 })
	drained, err := c.Node(0).Client(client.Options{}).Drain(ctx, "n3")
	if err != nil || drained == 0 {
		t.Fatalf("drain: %d, %v", drained, err)
	}
	c.Await("the watch shows that n3 leads nothing", func() bool {
		if !watch.Receive() {
			t.Fatal(watch.Err())
		}
		for _, m := range watch.Msg().GetMembers() {
			if m.GetNodeId() == "n3" && m.GetLeaderCount() == 0 {
				return true
			}
		}
		return false
	})
	if err := c.Node(1).Client(client.Options{}).MoveShard(ctx, 1, "n3"); client.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("a move to a node that is drained: %v", err)
	}
	if err := c.Node(2).Client(client.Options{}).Resume(ctx, "n3"); err != nil {
		t.Errorf("resume: %v", err)
	}
	c.Await("n3 leads again", func() bool { return leads(c, 0, "n3") > 0 })
	for what, err := range map[string]error{
		"move of no shard":  c.Node(0).Client(client.Options{}).MoveShard(ctx, 77, "n1"),
		"move to no node":   c.Node(1).Client(client.Options{}).MoveShard(ctx, 1, "n9"),
		"down of no node":   c.Node(2).Client(client.Options{}).Down(ctx, "n9"),
		"leave of no node":  c.Node(0).Client(client.Options{}).Leave(ctx, "n9"),
		"resume of no node": c.Node(0).Client(client.Options{}).Resume(ctx, "n9"),
	} {
		if !client.IsNotFound(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// leaderAt returns the leader of a shard according to a node.
func leaderAt(c *testkit.Cluster, node int, shard uint32) string {
	for _, s := range c.Shards(node) {
		if s.GetShardId() == shard {
			return s.GetLeader()
		}
	}
	return ""
}

// Every node describes every entity, with the information that its leader has.
func TestEveryNodeDescribesEntities(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for i := range 12 {
		id := fmt.Sprintf("entity-%d", i)
		reply, err := c.Node(i%3).Client(client.Options{}).Send(ctx, client.Command{EntityType: "counter", EntityID: id, Name: "add", Data: []byte(`{"amount":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range c.Nodes() {
			var got struct{ Status, Sequence, NodeID string }
			postJSON(t, n, "/hostd.entity.v1.EntityService/GetEntity", fmt.Sprintf(`{"entityType":"counter","entityId":%q}`, id), &got)
			if got.Status != "active" || got.Sequence != "1" || got.NodeID != reply.NodeID {
				t.Errorf("%s described at %s: %+v, ran at %s", id, n.ID(), got, reply.NodeID)
			}
		}
	}
	for _, n := range c.Nodes() {
		list, err := n.Client(client.Options{}).ListPage(ctx, listCounters())
		if err != nil || len(list.GetEntities()) != 12 {
			t.Errorf("%s lists %d entities, %v", n.ID(), len(list.GetEntities()), err)
		}
	}
}

// Every replica identifies the history of a shard in the same way. The same
// position gives the same cursor on every node, also after a leadership
// transfer and after a replica was created from a snapshot.
func TestCursorsAreEqualOnEveryNode(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 4})
	c.Push("counter")
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	shard := client.ShardOf("counter", "c0", 4)
	events, known := 0, []string(nil)
	compare := func(when string) {
		t.Helper()
		for range 5 {
			if _, err := c.Client(client.Options{}).Send(ctx, client.Command{EntityType: "counter", EntityID: "c0", Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
				t.Fatal(err)
			}
			events++
		}
		for i, n := range c.Nodes() {
			var got []string
			for d, err := range n.Client(client.Options{}).Subscribe(ctx, client.Subscription{EntityType: "counter", Shards: []uint32{shard}, Follow: true}) {
				if err != nil {
					t.Fatalf("%s at %s: %v", when, n.ID(), err)
				}
				if got = append(got, d.Cursor()); len(got) == events {
					break
				}
			}
			if i == 0 && slices.Equal(got[:len(known)], known) {
				known = got
			}
			if !slices.Equal(got, known) {
				t.Fatalf("%s at %s:\n%q, want\n%q", when, n.ID(), got, known)
			}
		}
	}
	compare("at first")
	to := c.Node((c.Leader(shard) + 1) % 3).ID()
	if err := c.Node(0).Client(client.Options{}).MoveShard(ctx, shard, to); err != nil {
		t.Fatal(err)
	}
	c.Await("another node leads", func() bool { return leaderAt(c, 0, shard) == to })
	compare("with another leader")
	const emptied = 2
	c.Stop(emptied)
	if err := os.RemoveAll(c.Node(emptied).DataDir()); err != nil {
		t.Fatal(err)
	}
	c.Node(emptied).Start()
	c.AwaitSpread()
	compare("with a replica that was made anew")
}
