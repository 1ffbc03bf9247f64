// Package hostile sends running nodes the hostile input that anybody with
// access to their ports can send, and checks the effect on the node and on
// other users. It contains only tests.
package hostile

import (
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

const entityPath = "/hostd.entity.v1.EntityService/"

// dial opens a connection to a node that is closed when the test ends.
func dial(t testing.TB, n *testkit.Node) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(n.API(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// neighbour is another user of the node, who has a separate counter.
type neighbour struct {
	t      testing.TB
	client *client.Client
	added  int
}

func newNeighbour(t testing.TB, n *testkit.Node) *neighbour {
	t.Helper()
	n.Push("counter")
	return &neighbour{t: t, client: n.Client(client.Options{})}
}

// adds runs a command, which must succeed and take effect once.
func (n *neighbour) adds() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), testkit.Patience)
	defer cancel()
	r, err := n.client.Send(ctx, client.Command{EntityType: "counter", EntityID: "neighbour", Name: "add", Data: []byte(`{"amount":1}`)})
	if err != nil {
		n.t.Fatalf("a neighbour's command: %v", err)
	}
	if n.added++; int(r.Sequence) != n.added {
		n.t.Fatalf("a neighbour's command %d got sequence %d", n.added, r.Sequence)
	}
}
