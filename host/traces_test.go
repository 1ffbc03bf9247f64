package host_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/tests/support/collector"
	"github.com/hostd/hostd/tests/support/testkit"
)

const callersTrace = "0af7651916cd43dd8448eb211c80319c"

// sendTraced sends a command to a node as part of a caller's trace, in its span.
// It tries again while a shard changes its leader.
func sendTraced(t *testing.T, n *host.Node, span string, r *entityv1.SendRequest) *entityv1.SendResponse {
	t.Helper()
	c := entityv1connect.NewEntityServiceClient(http.DefaultClient, "http://"+n.Addr())
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		req := connect.NewRequest(r)
		if span != "" {
			req.Header().Set("Traceparent", fmt.Sprintf("00-%s-%s-01", callersTrace, span))
		}
		res, err := c.Send(t.Context(), req)
		if err == nil {
			return res.Msg
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestOneTraceOverNodes: a caller's trace goes on at the node that it asks, at
// the one that leads the entity's shard, and at its successor; what no caller
// traces has no span.
func TestOneTraceOverNodes(t *testing.T) {
	c := collector.Start(t)
	nodes := startClusterWith(t, 3, 1, func(cfg *config.Config) { cfg.OTLPEndpoint = c.URL })
	if _, err := dialNode(t, nodes[0]).Upload(t.Context(), testkit.BuildExample(t, "counter"), true); err != nil {
		t.Fatal(err)
	}
	add := func(n *host.Node, id, span string) *entityv1.SendResponse {
		return sendTraced(t, n, span, &entityv1.SendRequest{EntityType: "counter", EntityId: "a", Command: "add", CommandId: id,
			Payload: &entityv1.SendRequest_Data{Data: []byte(`{"amount":1}`)}})
	}
	leader := add(nodes[0], "quiet", "").NodeId
	at := slices.IndexFunc(nodes, func(n *host.Node) bool { return string(n.ID()) == leader })
	asked := nodes[(at+1)%3]
	const first, second = "b7ad6b7169203331", "b7ad6b7169203332"
	if got := add(asked, "c-1", first).NodeId; got != leader {
		t.Fatalf("ran on %s, not on %s", got, leader)
	}
	stop(t, nodes[at])
	successor := add(asked, "c-2", second).NodeId
	for _, want := range []struct{ id, parent, ran string }{{"c-1", first, leader}, {"c-2", second, successor}} {
		ran := c.Await(t, "of the entity", func(s *collector.Span) bool {
			return s.Name == "entity counter/add" && s.Attributes["hostd.command_id"] == want.id && s.Attributes["hostd.sequence"] != nil
		})
		call := c.Await(t, "of the call", func(s *collector.Span) bool { return s.ID == ran.Parent })
		if ran.Trace != callersTrace || ran.Node != want.ran || ran.Failed {
			t.Errorf("%s: the entity's span is %+v", want.id, ran)
		}
		if call.Trace != callersTrace || call.Parent != want.parent || call.Node != string(asked.ID()) || call.Name != "hostd.entity.v1.EntityService/Send" {
			t.Errorf("%s: the call's span is %+v", want.id, call)
		}
		for _, child := range []string{"queue", "guest", "commit"} {
			s := c.Await(t, child, func(s *collector.Span) bool { return s.Parent == ran.ID && s.Name == child })
			if s.Trace != callersTrace || s.Node != want.ran || s.Began.Before(ran.Began.Add(-time.Second)) || s.Ended.Before(s.Began) || s.Ended.After(ran.Ended) {
				t.Errorf("%s: %+v within %+v", want.id, s, ran)
			}
		}
	}
	// The successor had to load the entity.
	c.Await(t, "load", func(s *collector.Span) bool { return s.Name == "load" && s.Node == successor })
	for _, s := range c.Spans() {
		if s.Trace != callersTrace || s.Attributes["hostd.command_id"] == "quiet" {
			t.Errorf("nobody has asked for %+v", s)
		}
	}
}
