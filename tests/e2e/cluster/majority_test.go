package cluster

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/loopback"
	"github.com/hostd/hostd/tests/support/testkit"
)

// codesOf sends a query and a command for an entity to only one node. Both must
// return long before the deadline.
func codesOf(n *testkit.Node, entity string) (codes []connect.Code) {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	c := entityv1connect.NewEntityServiceClient(http.DefaultClient, n.API())
	_, query := c.QueryEntity(ctx, connect.NewRequest(&entityv1.QueryEntityRequest{EntityType: "counter", EntityId: entity, Query: "total"}))
	_, command := c.SendCommand(ctx, connect.NewRequest(&entityv1.SendCommandRequest{EntityType: "counter", EntityId: entity, Command: "add", Payload: &entityv1.SendCommandRequest_Data{Data: []byte(`{"amount":1}`)}}))
	for _, err := range []error{query, command} {
		if err == nil {
			codes = append(codes, 0)
		} else {
			codes = append(codes, connect.CodeOf(err))
		}
	}
	return codes
}

// losable returns a shard and the indexes of two of its voters, without which
// the metadata shard still has a majority.
func losable(c *testkit.Cluster) (shard uint32, voters []int, dead []int) {
	all := c.Shards(0)
	var metadata []string
	for _, s := range all {
		if s.GetShardId() == 0 {
			metadata = s.GetVoters()
		}
	}
	for _, s := range all {
		if s.GetShardId() == 0 || len(s.GetVoters()) != 3 {
			continue
		}
		for skip := range 3 {
			two := slices.Delete(slices.Clone(s.GetVoters()), skip, skip+1)
			lost := 0
			for _, id := range two {
				if slices.Contains(metadata, id) {
					lost++
				}
			}
			if 2*(len(metadata)-lost) <= len(metadata) {
				continue
			}
			for _, id := range s.GetVoters() {
				voters = append(voters, c.Place(id))
			}
			return s.GetShardId(), voters, []int{c.Place(two[0]), c.Place(two[1])}
		}
	}
	return 0, nil, nil
}

// TestShardWithoutMajorityIsUnavailable kills two of five nodes, and with them
// the majority of a shard. Every remaining node must reject requests to the
// shard with that reason, with or without a replica. Each node stays ready, and
// the nodes with a replica of the shard name the shard.
func TestShardWithoutMajorityIsUnavailable(t *testing.T) {
	const shards = 10
	c := testkit.StartCluster(t, 5, testkit.ClusterOptions{Shards: shards})
	c.Push("counter")
	var shard uint32
	var voters, dead []int
	c.Await("a shard can be lost without the metadata", func() bool { shard, voters, dead = losable(c); return shard != 0 })
	entity := ""
	for i := 0; entity == ""; i++ {
		id := fmt.Sprint("e", i)
		if sharding.ShardOf(sharding.EntityID{Type: "counter", ID: id}, shards) == sharding.ShardID(shard) {
			entity = id
		}
	}
	if codes := codesOf(c.Node(0), entity); !slices.Equal(codes, []connect.Code{0, 0}) {
		t.Fatalf("before: %v", codes)
	}
	for _, place := range dead {
		c.Kill(place)
	}
	naming := regexp.MustCompile(fmt.Sprintf(`shards have no leader that this node can reach: (\d+, )*%d[,;]`, shard))
	without := 0
	for place, n := range c.Nodes() {
		if slices.Contains(dead, place) {
			continue
		}
		// A request may still be sent to the killed leader and have an unknown
		// outcome.
		n.Await("it refuses the shard's requests", func() bool {
			return slices.Equal(codesOf(n, entity), []connect.Code{connect.CodeUnavailable, connect.CodeUnavailable})
		})
		named := slices.Contains(voters, place)
		if !named {
			without++
		}
		n.Until("it is ready and names the shard if it has a replica", func() error {
			status, body := readyz(t, n)
			if status != http.StatusOK || named && !naming.MatchString(body) {
				return fmt.Errorf("%d %s", status, body)
			}
			return nil
		})
	}
	if without == 0 {
		t.Error("every node that is left has a replica of the shard")
	}
	for _, place := range dead {
		c.Node(place).Start()
	}
	for _, n := range c.Nodes() {
		n.Await("it answers about the shard again", func() bool { return slices.Equal(codesOf(n, entity), []connect.Code{0, 0}) })
	}
}

// TestNodesWithOneSeedsListFindEachOther starts three nodes at different
// loopback addresses with the same list of seeds, which contains each node's
// own address. The nodes must form one cluster.
func TestNodesWithOneSeedsListFindEachOther(t *testing.T) {
	var hosts, seeds []string
	for range 3 {
		hosts = append(hosts, loopback.Host())
		seeds = append(seeds, hosts[len(hosts)-1]+":7071")
	}
	var all []*testkit.Node
	for i, host := range hosts {
		n := testkit.NewNode(t, testkit.NodeOptions{
			ID: fmt.Sprint("n", i+1), Listen: host + ":7070", Flags: []string{"--bootstrap-expect", "3", "--seeds", strings.Join(seeds, ",")},
		})
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
		all = append(all, n)
	}
	for _, n := range all {
		if err := n.AwaitReady(); err != nil {
			t.Fatalf("%s: %v\n%s", n.ID(), err, n.Log())
		}
	}
	for _, n := range all {
		o, err := n.Client(client.Options{}).Cluster(t.Context())
		if err != nil || len(o.GetMembers()) != 3 {
			t.Errorf("%s sees %v, %v", n.ID(), o.GetMembers(), err)
		}
	}
}
