package host_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/tests/support/collector"
	"github.com/hostd/hostd/tests/support/testkit"
)

const callersTrace, fourth = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203334"

// sendTraced sends a command to a node as part of a caller's trace and span. It
// retries while a shard changes its leader.
func sendTraced(t *testing.T, n *host.Node, span string, r *entityv1.SendCommandRequest) *entityv1.SendCommandResponse {
	t.Helper()
	c := entityv1connect.NewEntityServiceClient(http.DefaultClient, "http://"+n.Addr())
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		req := connect.NewRequest(r)
		if span != "" {
			req.Header().Set("Traceparent", fmt.Sprintf("00-%s-%s-01", callersTrace, span))
		}
		res, err := c.SendCommand(t.Context(), req)
		if err == nil {
			return res.Msg
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestTracesOverNodes: traces continue after the node that led a shard has
// stopped. All checks share one cluster, because starting a cluster takes
// longest.
func TestTracesOverNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster of three nodes, which takes minutes under the race detector: run without -short")
	}
	c := collector.Start(t)
	nodes := startClusterWith(t, 3, 1, func(cfg *config.Config) { cfg.OTLPEndpoint = c.URL })
	for _, example := range []string{"counter", "account", "transfer"} {
		if _, err := dialNode(t, nodes[0]).Upload(t.Context(), testkit.BuildExample(t, example), true); err != nil {
			t.Fatal(err)
		}
	}
	request := func(entityType, id, command, commandID, data string) *entityv1.SendCommandRequest {
		return &entityv1.SendCommandRequest{EntityType: entityType, EntityId: id, Command: command, CommandId: commandID, Payload: &entityv1.SendCommandRequest_Data{Data: []byte(data)}}
	}
	sendTraced(t, nodes[0], "", request("account", "b", "open", "open", `{}`))
	sendTraced(t, nodes[0], "", request("account", "a", "deposit", "deposit", `{"amount":100}`))
	add := func(n *host.Node, id, span string) string {
		return sendTraced(t, n, span, request("counter", "a", "add", id, `{"amount":1}`)).NodeId
	}
	leader := add(nodes[0], "quiet", "")
	at := slices.IndexFunc(nodes, func(n *host.Node) bool { return string(n.ID()) == leader })
	asked := nodes[(at+1)%3]
	const first, second, third = "b7ad6b7169203331", "b7ad6b7169203332", "b7ad6b7169203333"
	if got := add(asked, "c-1", first); got != leader {
		t.Fatalf("ran on %s, not on %s", got, leader)
	}
	suspend(t, nodes[at], "account", "true")
	awaitSuspension(t, nodes[at], request("account", "other", "open", "", `{}`))
	sendTraced(t, nodes[at], third, request("transfer", "t", "start", "start", `{"from":"a","to":"b","amount":30,"timeoutMs":3600000}`))
	late := startLate(t, nodes[at], func(id string, ms int) *entityv1.SendCommandRequest {
		return request("transfer", id, "start", id, fmt.Sprintf(`{"from":"c","to":"d","amount":30,"timeoutMs":%d}`, ms))
	})
	stop(t, nodes[at])
	suspend(t, asked, "transfer", "")
	t.Run("timers", func(t *testing.T) { traceOfTimer(t, c, late, leader) })
	suspend(t, asked, "account", "")
	successor := add(asked, "c-2", second)

	ids := map[string]bool{callersTrace: true}
	t.Run("one trace", func(t *testing.T) {
		oneTrace(t, c, string(asked.ID()), successor, []ranOn{{"c-1", first, leader}, {"c-2", second, successor}})
	})
	t.Run("messages", func(t *testing.T) {
		for _, id := range tracesOfMessages(t, c, leader) {
			ids[id] = true
		}
	})
	spans := c.Spans()
	for n := 0; n < len(ids); { // each delivery attempt is a trace
		n = len(ids)
		for _, s := range spans {
			if len(s.Links) == 1 && ids[s.Links[0].Trace] {
				ids[s.Trace] = true
			}
		}
	}
	for _, s := range spans {
		if !ids[s.Trace] || s.Attributes["hostd.command_id"] == "quiet" {
			t.Errorf("nobody has asked for %+v", s)
		}
	}
}

// suspend sets whether a type is suspended.
func suspend(t *testing.T, n *host.Node, entityType, value string) {
	t.Helper()
	settings := clusterv1connect.NewClusterServiceClient(http.DefaultClient, "http://"+n.Addr())
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, err := settings.PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: "entity." + entityType + ".suspended", Value: value}))
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// awaitSuspension waits until a node rejects a command because its type is
// suspended.
func awaitSuspension(t *testing.T, n *host.Node, r *entityv1.SendCommandRequest) {
	t.Helper()
	asks := entityv1connect.NewEntityServiceClient(http.DefaultClient, "http://"+n.Addr())
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		_, err := asks.SendCommand(t.Context(), connect.NewRequest(r))
		if connect.CodeOf(err) == connect.CodeFailedPrecondition {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s is never suspended: %v", r.EntityType, err)
		}
	}
}

// startLate starts a transfer whose time-out is due only after its type was
// suspended, and returns its id.
func startLate(t *testing.T, n *host.Node, start func(id string, ms int) *entityv1.SendCommandRequest) string {
	t.Helper()
	asks := entityv1connect.NewEntityServiceClient(http.DefaultClient, "http://"+n.Addr())
	for ms := 4000; ms < 200_000; ms *= 2 {
		id := fmt.Sprint("late-", ms)
		sendTraced(t, n, fourth, start(id, ms))
		suspend(t, n, "transfer", "true")
		awaitSuspension(t, n, start(fmt.Sprint("other-", ms), ms))
		got, err := asks.GetEntity(t.Context(), connect.NewRequest(&entityv1.GetEntityRequest{EntityType: "transfer", EntityId: id}))
		if err != nil {
			t.Fatal(err)
		}
		// A timer that was nearly due may already have been firing.
		if all := got.Msg.GetTimers(); len(all) == 1 && time.Until(all[0].GetDue().AsTime()) > time.Second {
			return id
		}
		suspend(t, n, "transfer", "")
	}
	t.Fatal("types take minutes to be suspended")
	return ""
}

// traceOfTimer: a timer fires in a trace of its own, linked to the command that
// set it, even if the node that ran the command is gone.
func traceOfTimer(t *testing.T, c *collector.Collector, id, leader string) {
	span := func(command string) collector.Span {
		return c.Await(t, command, func(s *collector.Span) bool {
			return s.Name == "entity transfer/"+command && s.Attributes["hostd.entity.id"] == id && s.Attributes["hostd.sequence"] != nil
		})
	}
	set, fired := span("start"), span("timeout")
	if set.Trace != callersTrace || set.Node != leader {
		t.Errorf("the timer is set in %+v, not on %s", set, leader)
	}
	if fired.Parent != "" || fired.Trace == set.Trace || !slices.Equal(fired.Links, []collector.Link{{Trace: set.Trace, ID: set.ID}}) ||
		fired.Node == leader || fired.Attributes["hostd.timer"] != "timeout" || fired.Failed {
		t.Errorf("%+v does not follow %+v", fired, set)
	}
	for _, child := range []string{"queue", "guest", "commit"} {
		c.Await(t, child, func(s *collector.Span) bool { return s.Parent == fired.ID && s.Name == child })
	}
}

// ranOn is a command with the span of its caller and the node where it ran.
type ranOn struct{ id, parent, node string }

// oneTrace: a caller's trace continues on the node that it calls, on the leader
// of the entity's shard, and on the next leader.
func oneTrace(t *testing.T, c *collector.Collector, asked, successor string, commands []ranOn) {
	for _, want := range commands {
		ran := c.Await(t, "of the entity", func(s *collector.Span) bool {
			return s.Name == "entity counter/add" && s.Attributes["hostd.command_id"] == want.id && s.Attributes["hostd.sequence"] != nil
		})
		call := c.Await(t, "of the call", func(s *collector.Span) bool { return s.ID == ran.Parent })
		if ran.Trace != callersTrace || ran.Node != want.node || ran.Failed {
			t.Errorf("%s: the entity's span is %+v", want.id, ran)
		}
		if call.Trace != callersTrace || call.Parent != want.parent || call.Node != asked || call.Name != "hostd.entity.v1.EntityService/SendCommand" {
			t.Errorf("%s: the call's span is %+v", want.id, call)
		}
		for _, child := range []string{"queue", "guest", "commit"} {
			s := c.Await(t, child, func(s *collector.Span) bool { return s.Parent == ran.ID && s.Name == child })
			if s.Trace != callersTrace || s.Node != want.node || s.Began.Before(ran.Began.Add(-time.Second)) || s.Ended.Before(s.Began) || s.Ended.After(ran.Ended) {
				t.Errorf("%s: %+v within %+v", want.id, s, ran)
			}
			if module, _ := s.Attributes["hostd.module.digest"].(string); (child == "guest") != (len(module) == 64) {
				t.Errorf("%s: %s is of the module %q", want.id, child, module)
			}
		}
		if want.node == successor { // the successor had to load the entity
			c.Await(t, "load", func(s *collector.Span) bool { return s.Name == "load" && s.Parent == ran.ID })
		}
	}
}

// tracesOfMessages: each step of a saga is a trace of its own, linked to the
// previous step, even if the node that sent the first message is gone when it
// is delivered. It returns the trace ids.
func tracesOfMessages(t *testing.T, c *collector.Collector, leader string) (ids []string) {
	led := c.Await(t, "of the start", func(s *collector.Span) bool {
		return s.Name == "entity transfer/start" && s.Attributes["hostd.entity.id"] == "t" && s.Attributes["hostd.sequence"] != nil
	})
	if led.Trace != callersTrace || led.Node != leader {
		t.Errorf("the saga begins in %+v, not on %s", led, leader)
	}
	for _, step := range []string{"account/withdraw", "transfer/withdrawn", "account/deposit", "transfer/deposited"} {
		before := led
		led = c.Await(t, step, func(s *collector.Span) bool {
			return s.Name == "entity "+step && (s.Attributes["hostd.entity.id"] == "t" || s.Attributes["hostd.source.id"] == "t") && s.Attributes["hostd.sequence"] != nil
		})
		if led.Parent != "" || led.Trace == before.Trace || !slices.Equal(led.Links, []collector.Link{{Trace: before.Trace, ID: before.ID}}) || led.Node == leader {
			t.Errorf("%s: %+v does not follow %+v", step, led, before)
		}
		ids = append(ids, led.Trace)
	}
	return ids
}
