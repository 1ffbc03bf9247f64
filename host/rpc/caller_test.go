package rpc_test

import (
	"net/http"
	"testing"

	"connectrpc.com/connect"

	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/principal"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/tests/support/rpctest"
)

// forger says whom it asks for, as nodes do among themselves.
type forger struct {
	value string
	next  http.RoundTripper
}

func (f forger) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(principal.Header, f.value)
	return f.next.RoundTrip(r)
}

// TestRequestsSayWhoseTheyAre: commands, queries and the commands of streams
// have their caller, whatever the caller says, and the roles that allow them.
func TestRequestsSayWhoseTheyAre(t *testing.T) {
	check := func(t *testing.T, what string, c entityv1connect.EntityServiceClient, want string) {
		t.Helper()
		sent, err := c.Send(t.Context(), connect.NewRequest(&entityv1.SendRequest{EntityType: rpctest.Counter, EntityId: "a", Command: "who", Payload: &entityv1.SendRequest_Data{Data: []byte("{}")}}))
		if err != nil || string(sent.Msg.GetData()) != want {
			t.Errorf("%s sends: %s, %v", what, sent.Msg.GetData(), err)
		}
		asked, err := c.Query(t.Context(), connect.NewRequest(&entityv1.QueryRequest{EntityType: rpctest.Counter, EntityId: "a", Query: "who", Payload: &entityv1.QueryRequest_Data{Data: []byte("{}")}}))
		if err != nil || string(asked.Msg.GetData()) != want {
			t.Errorf("%s asks: %s, %v", what, asked.Msg.GetData(), err)
		}
		stream := c.SendStream(t.Context())
		who := &entityv1.SendStreamRequest_Item{Request: &entityv1.SendRequest{EntityType: rpctest.Counter, EntityId: "a", Command: "who", Payload: &entityv1.SendRequest_Data{Data: []byte("{}")}}}
		if err := stream.Send(&entityv1.SendStreamRequest{Requests: []*entityv1.SendStreamRequest_Item{who}}); err != nil {
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
		open := serve(t, rpc.Options{})
		check(t, "somebody", open.entities(), "null")
		check(t, "who forges", entityv1connect.NewEntityServiceClient(forging(open.h2.Transport), open.url), "null")
	})
	g := guard(t, rpc.Options{}, "root", "ann")
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
