package cluster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// fuelShards is the number of shards on the three nodes.
const fuelShards = 6

// TestFuelIsEqualOnAllNodes checks that the same commands on new guest
// instances consume the same fuel on three nodes, although command IDs, time
// and random seeds differ.
func TestFuelIsEqualOnAllNodes(t *testing.T) {
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: fuelShards})
	c.Push("counter", "account")
	frames := guest.Happened()
	loops := guest.Module{Bad: "calm", Frames: frames,
		Handle: slices.Concat(guest.Count(123_456), []byte{0x1a}, guest.Span(guest.FramesAt, uint32(len(frames))))}
	if _, err := c.Client(client.Options{Timeout: testkit.Patience}).Upload(t.Context(), loops.Build(), true); err != nil {
		t.Fatal(err)
	}
	c.AwaitSpread()
	for attempt := 1; !compareFuel(t, c, attempt); attempt++ {
		if attempt == 5 {
			t.Fatal("shards go on changing their leaders")
		}
		// After a restart every node uses new instances.
		c.StopAll()
		c.Start()
	}
}

// compareFuel sends the same commands to an entity on each node and compares
// the fuel. It returns false if a shard changed its leader meanwhile.
func compareFuel(t *testing.T, c *testkit.Cluster, attempt int) bool {
	t.Helper()
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	for typ, commands := range map[string][]client.Command{
		"calm":    {{Name: "x"}, {Name: "x"}},
		"counter": slices.Repeat([]client.Command{{Name: "add", Data: []byte(`{"amount":3}`)}, {Name: "add", Data: []byte(`{"amount":-40000}`)}}, 20),
		"account": {{Name: "open"}, {Name: "deposit", Data: []byte(`{"amount":77}`)}, {Name: "withdraw", Data: []byte(`{"amount":7}`)}},
	} {
		var want []uint64
		for place := range 3 {
			id := entityAt(t, c, typ, attempt, place)
			var spent []uint64
			for i, command := range commands {
				command.EntityType, command.EntityID, command.ID = typ, id, fmt.Sprintf("%s-%d-%03d", id, attempt, i)
				reply, err := cl.Send(t.Context(), command)
				if err != nil {
					t.Fatalf("%s %s: %v", typ, command.Name, err)
				}
				if reply.NodeID != c.Node(place).ID() {
					return false
				}
				spent = append(spent, reply.Fuel)
			}
			if slices.Contains(spent, 0) {
				t.Errorf("%s: commands cost nothing: %d", typ, spent)
			}
			if want == nil {
				want = spent
			} else if !slices.Equal(spent, want) {
				t.Errorf("%s: on %s the commands cost %d, on %s %d", typ, c.Node(place).ID(), spent, c.Node(0).ID(), want)
			}
		}
	}
	return true
}

// entityAt returns the ID of an entity whose shard a node leads. All IDs have
// the same length.
func entityAt(t *testing.T, c *testkit.Cluster, typ string, attempt, place int) string {
	t.Helper()
	for i := range 1000 {
		id := fmt.Sprintf("e%d-%03d", attempt, i)
		shard := sharding.ShardOf(sharding.EntityID{Type: typ, ID: id}, fuelShards)
		if c.Leader(uint32(shard)) == place {
			return id
		}
	}
	t.Fatalf("node %d leads no shard", place)
	return ""
}
