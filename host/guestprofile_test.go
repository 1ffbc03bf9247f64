package host_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// guestProfile profiles a type on all nodes. It returns the fuel by function,
// and for each node whether it answered.
func guestProfile(ctx context.Context, at *host.Node, entityType string) (fuel map[string]int64, nodes map[string]bool, err error) {
	in, err := clusterv1connect.NewClusterServiceClient(http.DefaultClient, "http://"+at.Addr()).ProfileGuests(ctx, connect.NewRequest(&clusterv1.ProfileGuestsRequest{EntityType: entityType, Duration: durationpb.New(time.Second)}))
	if err != nil {
		return nil, nil, err
	}
	defer in.Close()
	fuel, nodes = map[string]int64{}, map[string]bool{}
	for in.Receive() {
		for _, missing := range in.Msg().GetMissingNodes() {
			nodes[missing] = false
		}
		if node := in.Msg().GetNodeId(); node != "" {
			nodes[node] = true
		}
		for _, s := range in.Msg().GetStacks() {
			fuel[in.Msg().GetFunctions()[s.GetFunctions()[0]]] += s.GetFuel()
		}
	}
	return fuel, nodes, in.Err()
}

// TestGuestsAreProfiled: all nodes report in which functions the guests of a
// type spend fuel. The fuel of another type with the same module is not
// included, and a node that does not answer is named.
func TestGuestsAreProfiled(t *testing.T) {
	nodes := startCluster(t, 2, 4)
	c := dialNode(t, nodes[0])
	if _, err := c.Upload(t.Context(), guest.Module{Good: "good", Bad: "spins", Handle: guest.Count(300_000)}.Build(), true); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	for i := range 4 {
		busy.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				for _, entityType := range []string{"spins", "good"} {
					if _, err := c.Send(ctx, client.Command{EntityType: entityType, EntityID: strconv.Itoa(i), Name: "do"}); err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	defer busy.Wait()
	defer cancel()
	const handle = "function 5" // the function has no name
	for end := time.Now().Add(2 * time.Minute); ; {
		fuel, answered, err := guestProfile(t.Context(), nodes[0], "spins")
		if err != nil || len(answered) != 2 || !answered[string(nodes[0].ID())] || !answered[string(nodes[1].ID())] {
			t.Fatalf("nodes %v: %v", answered, err)
		}
		var sum int64
		for _, units := range fuel {
			sum += units
		}
		if sum > 1_000_000 {
			if fuel[handle] < sum*9/10 {
				t.Errorf("%v", fuel)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%v", fuel)
		}
	}
	fuel, _, err := guestProfile(t.Context(), nodes[1], "good")
	if err != nil || fuel[handle] > 1_000_000 {
		t.Errorf("commands that spend next to nothing: %v, %v", fuel, err)
	}
	if _, _, err := guestProfile(t.Context(), nodes[0], "nothing"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("a type that there is not: %v", err)
	}
	cancel()
	busy.Wait()
	stop(t, nodes[1])
	if _, answered, err := guestProfile(t.Context(), nodes[0], "spins"); err != nil || answered[string(nodes[1].ID())] || !answered[string(nodes[0].ID())] {
		t.Errorf("without a node: %v, %v", answered, err)
	}
}
