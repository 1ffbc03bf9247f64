package edge_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// forger states a caller in the header in which nodes name the caller of a
// forwarded call.
type forger struct {
	value string
	next  http.RoundTripper
}

func (f forger) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(principal.Header, f.value)
	return f.next.RoundTrip(r)
}

// TestRequestsCarryTheirCaller: commands, queries and the commands of streams
// carry their authenticated caller, whatever the client states, and the revision
// of the roles that allow them.
func TestRequestsCarryTheirCaller(t *testing.T) {
	check := func(t *testing.T, what string, c entityv1connect.EntityServiceClient, want string) {
		t.Helper()
		sent, err := c.SendCommand(t.Context(), connect.NewRequest(&entityv1.SendCommandRequest{EntityType: rpctest.Counter, EntityId: "a", Command: "who", Payload: &entityv1.SendCommandRequest_Data{Data: []byte("{}")}}))
		if err != nil || string(sent.Msg.GetData()) != want {
			t.Errorf("%s sends: %s, %v", what, sent.Msg.GetData(), err)
		}
		asked, err := c.QueryEntity(t.Context(), connect.NewRequest(&entityv1.QueryEntityRequest{EntityType: rpctest.Counter, EntityId: "a", Query: "who", Payload: &entityv1.QueryEntityRequest_Data{Data: []byte("{}")}}))
		if err != nil || string(asked.Msg.GetData()) != want {
			t.Errorf("%s asks: %s, %v", what, asked.Msg.GetData(), err)
		}
		stream := c.SendCommandStream(t.Context())
		who := &entityv1.SendCommandStreamRequest_Item{Request: &entityv1.SendCommandRequest{EntityType: rpctest.Counter, EntityId: "a", Command: "who", Payload: &entityv1.SendCommandRequest_Data{Data: []byte("{}")}}}
		if err := stream.Send(&entityv1.SendCommandStreamRequest{Requests: []*entityv1.SendCommandStreamRequest_Item{who}}); err != nil {
			t.Fatal(err)
		}
		m, err := stream.Receive()
		if err != nil || string(m.GetResponses()[0].GetResponse().GetData()) != want {
			t.Errorf("%s streams: %v, %v", what, m, err)
		}
		stream.CloseRequest()
		for err == nil {
			_, err = stream.Receive()
		}
	}
	forging := func(as http.RoundTripper) *http.Client {
		return &http.Client{Transport: forger{`{"kind":"token","name":"root"}`, as}}
	}
	t.Run("nobody is asked", func(t *testing.T) {
		open := serve(t, edge.Options{})
		check(t, "somebody", open.entities(), "null")
		check(t, "who forges", entityv1connect.NewEntityServiceClient(forging(open.h2.Transport), open.url), "null")
	})
	g := guard(t, edge.Options{}, "root", "ann")
	g.auth.Set(authz.Compile(0, nil, nil))
	check(t, "who shows nothing", g.entitiesAs(""), `{"kind":"anonymous"}`)
	check(t, "ann", g.entitiesAs("ann"), `{"kind":"token","name":"ann"}`)
	check(t, "ann, who forges,", entityv1connect.NewEntityServiceClient(forging(g.as("ann").Transport), g.url), `{"kind":"token","name":"ann"}`)
	g.begin(t)
	if revision := g.auth.Revision(); revision != 1 {
		t.Fatalf("the roles have revision %d", revision)
	}
	check(t, "root", g.entitiesAs("root"), `{"kind":"token","name":"root","roles":1}`)
}

// TestForwardedCallIsAuthorizedAgain: a forwarded call is checked against the
// roles of the caller that the node states. The listener for clients ignores
// such a statement, and a call without a caller may do nothing.
func TestForwardedCallIsAuthorizedAgain(t *testing.T) {
	var g *guarded
	between := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { g.server.ForPeers().ServeHTTP(w, r) })
	g = guard(t, edge.Options{Internal: map[string]http.Handler{leaderproxy.Path: between}}, "root", "ann")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- g.server.ServePeers(l) }()
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := g.server.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	h2 := &http.Transport{Protocols: new(http.Protocols)}
	h2.Protocols.SetUnencryptedHTTP2(true)
	defer h2.CloseIdleConnections()
	g.begin(t)
	g.role(t, "clerk", access.Rule{Effect: access.Allow, Verbs: []string{access.Read}, Types: []string{"counter"}, IDPrefixes: []string{"${principal.name}/"}})
	g.bind(t, "token:ann", "clerk")
	if _, err := g.entitiesAs("root").SendCommand(t.Context(), connect.NewRequest(add("ann/1", 1))); err != nil {
		t.Fatal(err)
	}
	call := func(listener, says, id string) map[string]error {
		url := map[string]string{"clients": g.url, "nodes": "http://" + l.Addr().String()}[listener]
		c := entityv1connect.NewEntityServiceClient(&http.Client{Transport: forger{says, h2}}, url+"/hostd.hop")
		_, get := c.GetEntity(t.Context(), connect.NewRequest(&entityv1.GetEntityRequest{EntityType: rpctest.Counter, EntityId: id}))
		events, read := c.ReadEvents(t.Context(), connect.NewRequest(&entityv1.ReadEventsRequest{EntityType: rpctest.Counter, EntityId: id}))
		if read == nil {
			for events.Receive() {
			}
			read = events.Err()
			_ = events.Close() // the stream has ended
		}
		return map[string]error{"GetEntity": get, "ReadEvents": read}
	}
	root, ann := `{"kind":"token","name":"root"}`, `{"kind":"token","name":"ann"}`
	revision := g.auth.Revision()
	for _, c := range []struct {
		listener, says, id string
		want               connect.Code
	}{
		{"nodes", root, "ann/1", 0},
		{"nodes", ann, "ann/1", 0},
		{"nodes", ann, "bo/1", connect.CodePermissionDenied},
		{"nodes", `{"kind":"token","name":"stranger"}`, "ann/1", connect.CodePermissionDenied},
		{"nodes", `{"kind":"anonymous"}`, "ann/1", connect.CodePermissionDenied},
		{"nodes", "", "ann/1", connect.CodePermissionDenied},
		{"nodes", fmt.Sprintf(`{"kind":"token","name":"ann","roles":%d}`, revision), "bo/1", connect.CodePermissionDenied},
		{"nodes", fmt.Sprintf(`{"kind":"token","name":"ann","roles":%d}`, revision+1), "bo/1", connect.CodeUnavailable},
		{"clients", root, "ann/1", connect.CodePermissionDenied},
		{"clients", ann, "ann/1", connect.CodePermissionDenied},
	} {
		for what, err := range call(c.listener, c.says, c.id) {
			if err == nil != (c.want == 0) || err != nil && connect.CodeOf(err) != c.want {
				t.Errorf("%s of %s on the listener for %s, by who is %q: %v", what, c.id, c.listener, c.says, err)
			}
		}
	}
}
