package host_test

import (
	"fmt"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/hostd/hostd/api/client"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestHotEntitiesAreFound: every node lists the entities with the most requests
// first, and says where they are.
func TestHotEntitiesAreFound(t *testing.T) {
	nodes := startCluster(t, 3, 6)
	ctx, c := t.Context(), dialNode(t, nodes[0])
	if _, err := c.Upload(ctx, guest.Module{Good: "good"}.Build(), true); err != nil {
		t.Fatal(err)
	}
	s := c.Stream(client.StreamOptions{})
	defer s.Close(ctx)
	send := func(id string) {
		err := s.Send(ctx, client.Command{EntityType: "good", EntityID: id, Name: "do"}, func(_ client.Reply, err error) {
			if err != nil {
				t.Error(err)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	eventually(t, "the hot entities to come first", func() bool {
		for range 400 {
			send("hottest")
			send("hottest")
			send("hot")
			send(fmt.Sprint("cold", asked%97))
			asked++
		}
		for _, n := range nodes {
			res, err := entityv1connect.NewEntityServiceClient(http.DefaultClient, "http://"+n.Addr()).ListHotEntities(ctx, connect.NewRequest(&entityv1.ListHotEntitiesRequest{Limit: 5}))
			if err != nil {
				t.Fatal(err)
			}
			all := res.Msg.GetEntities()
			if len(all) != 5 || all[0].GetEntityId() != "hottest" || all[1].GetEntityId() != "hot" {
				return false
			}
			where, err := c.Entity(ctx, "good", "hottest")
			if h := all[0]; err != nil || h.GetShardId() != where.GetShardId() || h.GetCommandsPerSecond() <= 0 || h.GetFuelPerSecond() <= 0 || h.GetFuelShare() > 1 {
				t.Fatalf("%v, %v, %v", h, where, err)
			}
		}
		return true
	})
}
