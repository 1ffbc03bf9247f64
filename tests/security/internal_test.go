package security

import (
	"encoding/json"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// TestInternalCommandsAreRejected checks that no node accepts an internal step
// of a saga from a client, by a call or a stream, and that the saga continues.
func TestInternalCommandsAreRejected(t *testing.T) {
	t.Parallel()
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("account", "transfer")
	refused := func(where string, err error) {
		t.Helper()
		if client.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "the command is internal") {
			t.Errorf("%s: %v", where, err)
		}
	}
	step := client.Command{EntityType: "transfer", EntityID: "t", Name: "withdrawn"}
	for _, n := range c.Nodes() {
		cl := n.Client(client.Options{Timeout: testkit.Patience})
		_, err := cl.Send(t.Context(), step)
		refused("a call of "+n.ID(), err)
		stream := cl.Stream(client.StreamOptions{})
		done := make(chan error, 1)
		if err := stream.Send(t.Context(), step, func(_ client.Reply, err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		refused("a stream of "+n.ID(), <-done)
		if err := stream.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	for _, cmd := range []client.Command{
		{EntityType: "account", EntityID: "a", Name: "deposit", Data: []byte(`{"amount":5}`)}, {EntityType: "account", EntityID: "b", Name: "open"},
		{EntityType: "transfer", EntityID: "t", Name: "start", Data: []byte(`{"from":"a","to":"b","amount":3,"timeoutMs":86400000}`)},
	} {
		if _, err := cl.Send(t.Context(), cmd); err != nil {
			t.Fatal(err)
		}
	}
	c.Await("the transfer is done", func() bool {
		var s struct{ State string }
		r, err := cl.Query(t.Context(), client.Query{EntityType: "transfer", EntityID: "t", Name: "status"})
		return err == nil && json.Unmarshal(r.Data, &s) == nil && s.State == "done"
	})
}
