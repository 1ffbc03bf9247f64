package security

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/tests/support/testkit"
)

// headers is a transport that adds headers to each call.
type headers struct {
	set  map[string]string
	next http.RoundTripper
}

func (h headers) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for k, v := range h.set {
		if v != "" {
			r.Header.Set(k, v)
		}
	}
	return h.next.RoundTrip(r)
}

// at is a client of one node, which does not try other nodes.
type at struct {
	entityv1connect.EntityServiceClient
	t   *testing.T
	ctx context.Context
}

// calls returns a function that creates clients of a node, which are closed
// when the test ends.
func calls(t *testing.T, ctx context.Context) func(url, token, says string) at {
	transport := network.NewHTTPTransport(network.TCP{}, network.HTTPOptions{})
	t.Cleanup(transport.CloseIdleConnections)
	return func(url, token, says string) at {
		set := map[string]string{"Hostd-Principal": says}
		if token != "" {
			set["Authorization"] = "Bearer " + token
		}
		return at{entityv1connect.NewEntityServiceClient(&http.Client{Transport: headers{set, transport}}, url), t, ctx}
	}
}

func (a at) add(id string) (node string, err error) {
	res, err := a.SendCommand(a.ctx, connect.NewRequest(&entityv1.SendCommandRequest{EntityType: "counter", EntityId: id, Command: "add", Payload: &entityv1.SendCommandRequest_Data{Data: []byte(`{"amount":1}`)}}))
	if err != nil {
		return "", err
	}
	return res.Msg.GetNodeId(), nil
}

// everything makes each kind of call that the leader of an entity's shard
// answers, and returns the errors.
func (a at) everything(id string) map[string]error {
	out := map[string]error{}
	_, out["SendCommand"] = a.add(id)
	_, out["QueryEntity"] = a.QueryEntity(a.ctx, connect.NewRequest(&entityv1.QueryEntityRequest{EntityType: "counter", EntityId: id, Query: "total"}))
	_, out["GetState"] = a.GetState(a.ctx, connect.NewRequest(&entityv1.GetStateRequest{EntityType: "counter", EntityId: id}))
	_, out["GetEntity"] = a.GetEntity(a.ctx, connect.NewRequest(&entityv1.GetEntityRequest{EntityType: "counter", EntityId: id}))
	_, out["PassivateEntity"] = a.PassivateEntity(a.ctx, connect.NewRequest(&entityv1.PassivateEntityRequest{EntityType: "counter", EntityId: id}))
	_, out["DeleteEntity"] = a.DeleteEntity(a.ctx, connect.NewRequest(&entityv1.DeleteEntityRequest{EntityType: "counter", EntityId: id, CommandId: "d-" + id}))
	events, err := a.ReadEvents(a.ctx, connect.NewRequest(&entityv1.ReadEventsRequest{EntityType: "counter", EntityId: id}))
	if err == nil {
		for events.Receive() {
		}
		err = errors.Join(events.Err())
		_ = events.Close() // the stream has already ended
	}
	out["ReadEvents"] = err
	_, out["ReadRecords"] = a.ReadRecords(a.ctx, connect.NewRequest(&entityv1.ReadRecordsRequest{EntityType: "counter", EntityId: id}))
	return out
}

// stream sends a command over a stream.
func (a at) stream(id string) error {
	s := a.SendCommandStream(a.ctx)
	defer func() { _ = s.CloseResponse() }()
	err := s.Send(&entityv1.SendCommandStreamRequest{Requests: []*entityv1.SendCommandStreamRequest_Item{{
		Request: &entityv1.SendCommandRequest{EntityType: "counter", EntityId: id, Command: "add", Payload: &entityv1.SendCommandRequest_Data{Data: []byte(`{"amount":1}`)}},
	}}})
	if err != nil {
		return err
	}
	m, err := s.Receive()
	if err != nil {
		return err
	}
	_ = s.CloseRequest() // the answer has arrived
	if e := m.GetResponses()[0].GetError(); e != nil {
		return fmt.Errorf("%s: %s", e.GetCode(), e.GetMessage())
	}
	return nil
}

// role returns the verb and the type that an error denies.
func role(err error) string {
	var e *connect.Error
	if !errors.As(err, &e) || e.Code() != connect.CodePermissionDenied {
		return ""
	}
	for _, d := range e.Details() {
		if m, err := d.Value(); err == nil {
			if info, ok := m.(*errdetails.ErrorInfo); ok && info.GetReason() == "ROLE_REQUIRED" {
				return info.GetMetadata()["verb"] + " " + info.GetMetadata()["type"]
			}
		}
	}
	return ""
}

// roleOf reports whether an error denies the verb, for the counter or, if the
// body was not read because the caller has no rule for the verb, for all types.
func roleOf(err error, verb string) bool {
	return role(err) == verb+" counter" || role(err) == verb+" "
}

// TestExecutingNodeChecksRolesAgain uses three nodes. One of them authenticates
// callers but does not check roles, and another node does neither. The leader
// of a shard must reject forbidden calls that these nodes forward, and a client
// must not be able to set its identity by a header.
func TestExecutingNodeChecksRolesAgain(t *testing.T) {
	token, file := tokens(t, "root", "ann", "bo")
	asks := []string{"--auth", "required", "--token-file", file, "--admin", "full"}
	c := testkit.NewCluster(t, 3, testkit.ClusterOptions{
		Token: token["root"], NodeFlags: map[int][]string{0: asks, 1: asks, 2: {"--admin", "full"}}, NodePlanted: map[int][]string{1: {"security/planted/decides-nothing.txt"}},
	})
	c.Start()
	c.Push("counter")
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Patience)
	defer cancel()
	root := c.Node(0).Client(client.Options{Timeout: testkit.Patience})
	bind(t, root, "token:root", "admin")
	if _, err := root.PutRole(ctx, "clerk", &clusterv1.RoleRule{Effect: "allow", Verbs: []string{"invoke", "query", "read", "operate"}, Types: []string{"counter"}, IdPrefixes: []string{"${principal.name}/"}}); err != nil {
		t.Fatal(err)
	}
	bind(t, root, "token:ann", "clerk")
	call := calls(t, ctx)
	sees, decidesNot, asksNot := c.Node(0), c.Node(1), c.Node(2)
	// Ann has one entity for each leader. If leaders change later, a call may be
	// executed by a different node than intended, which does no harm.
	led := map[string]string{}
	for i := 0; len(led) < 3 && i < 200; i++ {
		id := fmt.Sprintf("ann/%d", i)
		var node string
		sees.Until("root sends", func() (err error) {
			node, err = call(sees.API(), token["root"], "").add(id)
			return err
		})
		led[node] = id
	}
	if len(led) < 3 {
		t.Fatalf("only these nodes lead any: %v", led)
	}
	here := led[sees.ID()]

	bo := call(decidesNot.API(), token["bo"], "")
	if node, err := bo.add(led[decidesNot.ID()]); err != nil || node != decidesNot.ID() {
		t.Fatalf("the node that is not to decide does: %s, %v", node, err)
	}
	verbs := map[string]string{"SendCommand": "invoke", "QueryEntity": "query", "GetState": "query", "GetEntity": "read", "ReadEvents": "read", "ReadRecords": "read", "PassivateEntity": "operate", "DeleteEntity": "operate"}
	for what, err := range bo.everything(here) {
		if verbs[what] == "" || !roleOf(err, verbs[what]) || !strings.Contains(err.Error(), `token "bo" lacks the verb `+verbs[what]) {
			t.Errorf("%s of who has no role is answered %v", what, err)
		}
	}
	if err := bo.stream(here); err == nil || !strings.HasPrefix(err.Error(), "permission_denied: ") {
		t.Errorf("a command of a stream of who has no role: %v", err)
	}
	ann := call(decidesNot.API(), token["ann"], "")
	decidesNot.Until("ann has her role on the node that leads", func() error {
		_, err := ann.add(here)
		return err
	})
	for what, err := range ann.everything(here) {
		if err != nil {
			t.Errorf("%s of who may: %v", what, err)
		}
	}
	if err := ann.stream(here); err != nil {
		t.Errorf("a command of a stream of who may: %v", err)
	}

	// A caller of the node without authentication can use only the shards that
	// this node leads.
	nobody := call(asksNot.API(), "", "")
	if node, err := nobody.add(led[asksNot.ID()]); err != nil || node != asksNot.ID() {
		t.Errorf("a node that asks nobody: %s, %v", node, err)
	}
	for _, says := range []string{"", `{"kind":"token","name":"root"}`} {
		for what, err := range call(asksNot.API(), token["root"], says).everything(here) {
			if !roleOf(err, verbs[what]) || !strings.Contains(err.Error(), "has auth: none") {
				t.Errorf("%s by way of a node that asks nobody, which is told %q: %v", what, says, err)
			}
		}
	}

	// A header is no credential, and procedures for nodes are not served to
	// clients.
	forged := call(sees.API(), token["bo"], `{"kind":"token","name":"root"}`)
	for id := range map[string]bool{here: true, led[decidesNot.ID()]: true} {
		for what, err := range forged.everything(id) {
			if !roleOf(err, verbs[what]) {
				t.Errorf("%s of %s by a header: %v", what, id, err)
			}
		}
	}
	between := call(sees.API()+"/hostd.hop", "", `{"kind":"token","name":"root"}`)
	for what, err := range between.everything(here) {
		if connect.CodeOf(err) != connect.CodeUnimplemented && connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s at what is between nodes: %v", what, err)
		}
	}
}
