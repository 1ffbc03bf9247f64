package security

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/tests/support/testkit"
)

// oneVerbEach checks, on each node of a cluster, callers that have one verb for
// the type counter. Calls that the verb permits must succeed in all shards,
// whichever node leads them, and calls that need any other verb must be denied.
// Every node must return the same error for an invalid payload.
func oneVerbEach(t *testing.T, c *testkit.Cluster, root *client.Client, token map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*testkit.Patience)
	defer cancel()
	const entities = 12 // several entities in each shard
	for i := range entities {
		if _, err := root.Send(ctx, client.Command{EntityType: "counter", EntityID: fmt.Sprint("verb/", i), Name: "add", Data: []byte(`{"amount":1}`)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, verb := range map[string]string{"op": "operate", "dep": "deploy"} {
		if _, err := root.PutRole(ctx, verb+"s", &clusterv1.RoleRule{Effect: "allow", Verbs: []string{verb}, Types: []string{"counter"}}); err != nil {
			t.Fatal(err)
		}
		bind(t, root, "token:"+name, verb+"s")
	}
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	wasm := testkit.BuildExample(t, "counter")
	for i, node := range c.Nodes() {
		clear := func(name string) error {
			service := entityv1connect.NewEntityServiceClient(&http.Client{Transport: transport}, node.API(), connect.WithInterceptors(authorization(token[name])))
			_, err := service.ClearTypeFaults(ctx, connect.NewRequest(&entityv1.ClearTypeFaultsRequest{EntityType: "counter"}))
			return err
		}
		push := func(name string) error {
			other := append(append([]byte{}, wasm...), 0, 2, 1, byte('a'+i)) // add a custom section
			_, err := node.Client(client.Options{Token: token[name], Timeout: testkit.Patience, GivenOnly: true}).Upload(ctx, other, true)
			return err
		}
		node.Until("who may operate clears the faults of all shards", func() error { return clear("op") })
		node.Until("who may deploy has another module serve", func() error { return push("dep") })
		if err := clear("dep"); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("%s: who may deploy clears faults: %v", node.ID(), err)
		}
		refusedFor(t, node.ID()+": who may operate has a module serve", "ROLE_REQUIRED", push("op"))

		given := node.Client(client.Options{Timeout: testkit.Patience, GivenOnly: true})
		for k := range entities {
			id := fmt.Sprint("verb/", k)
			_, err := given.Send(ctx, client.Command{EntityType: "counter", EntityID: id, Name: "add", Data: []byte(`{"amout":1}`)})
			var e *client.Error
			if !errors.As(err, &e) || e.Code != connect.CodeInvalidArgument || !strings.Contains(e.Message, `did you mean "amount"?`) {
				t.Errorf("%s: a payload that does not fit, for %s: %v", node.ID(), id, err)
			}
		}
	}
	for k := range entities {
		if e, err := root.Entity(ctx, "counter", fmt.Sprint("verb/", k)); err != nil || e.GetSequence() != 1 {
			t.Errorf("a payload that does not fit has changed an entity: %v, %v", e, err)
		}
	}
}
