package testkit

import (
	"os"
	"testing"

	"github.com/hostd/hostd/api/client"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// TestNode exercises every operation that other tests perform on a node.
func TestNode(t *testing.T) {
	n := StartNode(t, NodeOptions{})
	n.Push("counter")
	c := n.Client(client.Options{Timeout: Patience})
	add := client.Command{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte(`{"amount":2}`)}
	for _, end := range []func(){n.Kill, n.Stop} {
		if _, err := c.Send(t.Context(), add); err != nil {
			t.Fatal(err)
		}
		api := n.API()
		end()
		if n.Running() {
			t.Fatal("the node runs after its end")
		}
		n.MustVerify()
		n.Start()
		if n.API() != api {
			t.Errorf("the node came back at %s, was at %s", n.API(), api)
		}
	}
	answer, err := c.Query(t.Context(), client.Query{EntityType: "counter", EntityID: "a", Name: "total"})
	if err != nil || string(answer.Data) != `{"total":4}` {
		t.Errorf("total is %s, %v", answer.Data, err)
	}
}
