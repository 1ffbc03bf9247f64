package edge_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// serveFleet runs nodes until the test ends, and checks that they leave no
// goroutine behind.
func serveFleet(t *testing.T, n int) (*rpctest.Fleet, *http.Client) {
	t.Helper()
	before := runtime.NumGoroutine()
	c, err := rpctest.NewFleet(n)
	if err != nil {
		t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	h2 := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	t.Cleanup(func() {
		h2.CloseIdleConnections()
		c.Close()
		eventually(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before })
	})
	return c, h2
}

func addTo(t *testing.T, c entityv1connect.EntityServiceClient, id string, n int) {
	t.Helper()
	_, err := c.SendCommand(context.Background(), connect.NewRequest(&entityv1.SendCommandRequest{
		EntityType: rpctest.Counter, EntityId: id, Command: "add",
		Payload: &entityv1.SendCommandRequest_Data{Data: fmt.Appendf(nil, `{"amount":%d}`, n)},
	}))
	if err != nil {
		t.Fatal(err)
	}
}

// TestAnyNodeAnswers: a call about a shard that a different node leads is
// forwarded to that node.
func TestAnyNodeAnswers(t *testing.T) {
	c, h2 := serveFleet(t, 3)
	c.Forwards = true
	for s := sharding.ShardID(1); s <= rpctest.Shards; s++ {
		c.Move(s, sharding.NodeID(fmt.Sprint("n", 1+s%3)))
	}
	var clients []entityv1connect.EntityServiceClient
	for i := range 3 {
		clients = append(clients, entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(i+1).Addr))
	}
	const entities = 40
	for i := range entities {
		addTo(t, clients[i%3], fmt.Sprintf("e%02d", i), i)
	}
	for n, client := range clients {
		for i := range entities {
			id := fmt.Sprintf("e%02d", i)
			leader := c.Leader(sharding.ShardOf(sharding.EntityID{Type: rpctest.Counter, ID: id}, rpctest.Shards))
			res, err := client.GetEntity(t.Context(), connect.NewRequest(&entityv1.GetEntityRequest{EntityType: rpctest.Counter, EntityId: id}))
			if err != nil || res.Msg.GetNodeId() != string(leader) || res.Msg.GetSequence() != 1 {
				t.Fatalf("node %d, entity %s: %v, %v", n+1, id, res, err)
			}
			sent, err := client.SendCommand(t.Context(), connect.NewRequest(&entityv1.SendCommandRequest{EntityType: rpctest.Counter, EntityId: id, Command: "echo"}))
			if err != nil || sent.Msg.GetNodeId() != string(leader) {
				t.Fatalf("node %d, entity %s was run by %v, %v", n+1, id, sent, err)
			}
		}
	}
	// The next page is read from a different node, where the page token is
	// valid too.
	seen, token := map[string]int{}, ""
	for page := 0; page == 0 || token != ""; page++ {
		res, err := clients[page%3].ListEntities(t.Context(), connect.NewRequest(&entityv1.ListEntitiesRequest{EntityType: rpctest.Counter, PageSize: 7, PageToken: token}))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range res.Msg.GetEntities() {
			seen[e.GetEntityId()]++
		}
		token = res.Msg.GetNextPageToken()
	}
	if len(seen) != entities {
		t.Errorf("listed %d entities", len(seen))
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s is listed %d times", id, n)
		}
	}
}

// TestForwardedCallIsNotForwardedAgain: a forwarded call is answered or rejected, but not forwarded
// again.
func TestForwardedCallIsNotForwardedAgain(t *testing.T) {
	c, h2 := serveFleet(t, 2)
	peer := entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(2).Addr+leaderproxy.Path[:len(leaderproxy.Path)-1])
	if _, err := peer.GetEntity(t.Context(), connect.NewRequest(&entityv1.GetEntityRequest{EntityType: rpctest.Counter, EntityId: "a"})); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("at the wrong node: %v", err)
	}
	peer = entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(1).Addr+leaderproxy.Path[:len(leaderproxy.Path)-1])
	if _, err := peer.GetEntity(t.Context(), connect.NewRequest(&entityv1.GetEntityRequest{EntityType: rpctest.Counter, EntityId: "a"})); err != nil {
		t.Errorf("at the right node: %v", err)
	}
	// If two nodes each take the other for the leader, the call ends at the
	// deadline.
	c.Move(1, "")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	other := entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(2).Addr)
	id := inShard(1)
	if _, err := other.GetEntity(ctx, connect.NewRequest(&entityv1.GetEntityRequest{EntityType: rpctest.Counter, EntityId: id})); err == nil {
		t.Error("an entity without a leader was described")
	}
	// When there is a leader again, the same node finds that leader.
	time.AfterFunc(10*time.Millisecond, func() { c.Move(1, "n1") })
	if _, err := other.GetEntity(t.Context(), connect.NewRequest(&entityv1.GetEntityRequest{EntityType: rpctest.Counter, EntityId: id})); err != nil {
		t.Errorf("after an election: %v", err)
	}
}

// inShard returns an entity id in a shard.
func inShard(shard sharding.ShardID) string {
	for i := 0; ; i++ {
		if id := fmt.Sprint("x", i); sharding.ShardOf(sharding.EntityID{Type: rpctest.Counter, ID: id}, rpctest.Shards) == shard {
			return id
		}
	}
}

// TestEventsFollowTheLeader: a follower at one node gets each event once, in
// order, while the entity's leader moves and nodes fail.
func TestEventsFollowTheLeader(t *testing.T) {
	c, h2 := serveFleet(t, 3)
	c.Forwards = true
	id := inShard(2)
	entry := entityv1connect.NewEntityServiceClient(h2, "http://"+c.Node(3).Addr)
	const events = 60
	stream, err := entry.ReadEvents(t.Context(), connect.NewRequest(&entityv1.ReadEventsRequest{
		EntityType: rpctest.Counter, EntityId: id, Follow: true, ToSequence: events,
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for i := range events {
		switch i % 10 {
		case 3:
			c.Move(2, sharding.NodeID(fmt.Sprint("n", 1+i/10%3)))
		case 6:
			c.Node(1).Kill()
			if c.Leader(2) == "n1" {
				c.Move(2, "n2")
			}
		case 8:
			if err := c.Node(1).Start(); err != nil {
				t.Fatal(err)
			}
		}
		addTo(t, entry, id, i)
		if !stream.Receive() {
			t.Fatalf("event %d: %v", i+1, stream.Err())
		}
		if m := stream.Msg(); m.GetSequence() != uint64(i+1) || m.GetJson().GetStructValue().GetFields()["amount"].GetNumberValue() != float64(i) {
			t.Fatalf("event %d: %v", i+1, m)
		}
	}
	if stream.Receive() || stream.Err() != nil {
		t.Errorf("after the end: %v, %v", stream.Msg(), stream.Err())
	}
	whole, err := entry.ReadEvents(t.Context(), connect.NewRequest(&entityv1.ReadEventsRequest{EntityType: rpctest.Counter, EntityId: id, FromSequence: 11}))
	if err != nil {
		t.Fatal(err)
	}
	defer whole.Close()
	n := 0
	for whole.Receive() {
		n++
	}
	if n != events-10 || whole.Err() != nil {
		t.Errorf("read %d events, %v", n, whole.Err())
	}
}
