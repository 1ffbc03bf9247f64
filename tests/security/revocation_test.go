package security

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/host/network"
	"github.com/hostd/hostd/tests/support/testkit"
)

// opened are the streams of one caller at one node. They do not reconnect to
// other nodes.
type opened struct {
	commands *connect.BidiStreamForClient[entityv1.SendCommandStreamRequest, entityv1.SendCommandStreamResponse]
	events   *connect.ServerStreamForClient[entityv1.SubscribeEventsResponse]
}

// open opens both streams with a token, and waits until both have received
// something.
func open(t *testing.T, ctx context.Context, calls connect.HTTPClient, node *testkit.Node, token, id string) opened {
	t.Helper()
	header := connect.WithInterceptors(bearer(token))
	service := entityv1connect.NewEntityServiceClient(calls, node.API(), header, connect.WithGRPC())
	o := opened{commands: service.SendCommandStream(ctx)}
	if err := o.commands.Send(&entityv1.SendCommandStreamRequest{Requests: []*entityv1.SendCommandStreamRequest_Item{{
		CorrelationId: 1, Request: &entityv1.SendCommandRequest{EntityType: "counter", EntityId: id, Command: "add", Payload: &entityv1.SendCommandRequest_Data{Data: []byte(`{"amount":1}`)}},
	}}}); err != nil {
		t.Fatalf("%s: %v", node.ID(), err)
	}
	answer, err := o.commands.Receive()
	if err != nil || len(answer.GetResponses()) != 1 || answer.GetResponses()[0].GetResponse() == nil {
		t.Fatalf("%s: a command of the stream: %v, %v", node.ID(), answer, err)
	}
	if o.events, err = service.SubscribeEvents(ctx, connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: "counter", Follow: true})); err != nil {
		t.Fatalf("%s: %v", node.ID(), err)
	}
	if !o.events.Receive() {
		t.Fatalf("%s: an event of the subscription: %v", node.ID(), o.events.Err())
	}
	return o
}

// bearer adds a token to every call.
func bearer(token string) connect.Interceptor { return shows(token) }

type shows string

func (s shows) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

func (s shows) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		conn.RequestHeader().Set("Authorization", "Bearer "+string(s))
		return conn
	}
}

func (s shows) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

// ended waits for the ends of both streams, and returns the time and their
// errors.
func (o opened) ended() (at time.Time, commands, events error) {
	var both sync.WaitGroup
	both.Go(func() {
		for commands == nil {
			_, commands = o.commands.Receive()
		}
	})
	both.Go(func() {
		for o.events.Receive() {
		}
		if events = o.events.Err(); events == nil {
			events = io.EOF
		}
	})
	both.Wait()
	return time.Now(), commands, events
}

// TestRevocationEndsOpenStreams checks that roles revoked by a call to one node
// are revoked on all nodes, and that the caller's subscriptions and command
// streams end on all of them. The revocation spreads through the metadata log
// and depends on no clock, so the test logs the time that it took but checks no
// limit.
func TestRevocationEndsOpenStreams(t *testing.T) {
	token, file := tokens(t, "root", "ann", "bo")
	c := testkit.NewCluster(t, 3, testkit.ClusterOptions{Token: token["root"], Flags: []string{"--auth", "required", "--token-file", file, "--admin", "full"}})
	c.Start()
	c.Push("counter")
	root := c.Node(0).Client(client.Options{Timeout: testkit.Patience})
	bind(t, root, "token:root", "admin")
	bind(t, root, "token:ann", "viewer", "invoker")
	bind(t, root, "token:bo", "viewer", "invoker")
	ctx, cancel := context.WithTimeout(t.Context(), 2*testkit.Patience)
	defer cancel()
	transport := network.NewHTTPTransport(network.TCP{}, network.HTTPOptions{})
	defer transport.CloseIdleConnections()
	calls := &http.Client{Transport: transport}
	var hers, his []opened
	// A node also checks forwarded calls, so all nodes must know the roles.
	for _, node := range c.Nodes() {
		node.Until("bo has roles", func() error {
			his, err := node.Client(client.Options{Token: token["bo"], Timeout: testkit.Patience}).CanI(ctx, &clusterv1.CheckAccessRequest{})
			if err == nil && len(his.GetRoles()) == 0 {
				err = errors.New("he has none")
			}
			return err
		})
	}
	for _, node := range c.Nodes() {
		for _, who := range []string{"ann", "bo"} {
			cl := node.Client(client.Options{Token: token[who], Timeout: testkit.Patience})
			node.Until(who+" may send", func() error {
				_, err := cl.Send(ctx, client.Command{EntityType: "counter", EntityID: node.ID(), Name: "add", Data: []byte(`{"amount":1}`)})
				return err
			})
		}
		hers = append(hers, open(t, ctx, calls, node, token["ann"], "ann-"+node.ID()))
		his = append(his, open(t, ctx, calls, node, token["bo"], "bo-"+node.ID()))
	}
	began := time.Now()
	if err := root.DeleteRoleBinding(ctx, "token:ann"); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for i, o := range hers {
		waiting.Go(func() {
			at, commands, events := o.ended()
			for what, err := range map[string]error{"stream of commands": commands, "subscription": events} {
				if connect.CodeOf(err) != connect.CodePermissionDenied {
					t.Errorf("%s: the %s of who has no role any more ended with %v", c.Node(i).ID(), what, err)
				}
			}
			t.Logf("%s: both streams had ended %s after the call to %s began", c.Node(i).ID(), at.Sub(began), c.Node(0).ID())
		})
	}
	waiting.Wait()
	for i, node := range c.Nodes() {
		ann := node.Client(client.Options{Token: token["ann"], Timeout: testkit.Patience})
		if _, err := ann.Send(ctx, client.Command{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte(`{"amount":1}`)}); client.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s: a command: %v", node.ID(), err)
		}
		// The streams of a caller that keeps its roles continue.
		if err := his[i].commands.Send(&entityv1.SendCommandStreamRequest{Requests: []*entityv1.SendCommandStreamRequest_Item{{
			CorrelationId: 2, Request: &entityv1.SendCommandRequest{EntityType: "counter", EntityId: "last-" + node.ID(), Command: "add", Payload: &entityv1.SendCommandRequest_Data{Data: []byte(`{"amount":1}`)}},
		}}}); err != nil {
			t.Errorf("%s: another's stream: %v", node.ID(), err)
		}
		if answer, err := his[i].commands.Receive(); err != nil || len(answer.GetResponses()) != 1 || answer.GetResponses()[0].GetResponse() == nil {
			t.Errorf("%s: another's stream: %v, %v", node.ID(), answer, err)
		}
		for his[i].events.Receive() && his[i].events.Msg().GetEntityId() != "last-"+node.ID() {
		}
		if err := his[i].events.Err(); err != nil {
			t.Errorf("%s: another's subscription: %v", node.ID(), err)
		}
	}
	cancel()
	for _, o := range his {
		if _, err := o.commands.Receive(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("a stream that was cancelled: %v", err)
		}
		_ = o.events.Close() // already cancelled
	}
}
