// Package disk takes power, disk space and whole files away from a node. It
// checks that the node either serves the data that it acknowledged or refuses
// to serve, and never serves wrong data. It contains only tests.
package disk

import (
	"os"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/workload"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// verdictTime limits the time for checking the history of one entity.
const verdictTime = time.Minute

// goesOn waits until the load has received the given number of further answers.
func goesOn(t *testing.T, node *testkit.Node, load *workload.Load, more int) {
	t.Helper()
	target := load.Acknowledged() + more
	node.Await("the load goes on", func() bool { return load.Acknowledged() >= target || load.Fault() != nil })
	if err := load.Fault(); err != nil {
		t.Fatalf("a caller was told: %v", err)
	}
}

// patient returns a client that retries until a fault is over.
func patient(node *testkit.Node) *client.Client {
	return node.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 50 * time.Millisecond})
}

// settled checks a complete history against a node that has no load.
func settled(t *testing.T, c *client.Client, h *history.History) {
	t.Helper()
	if _, err := workload.ReadBack(t.Context(), c, h); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Linearizable(verdictTime, "account", "chain"); err != nil {
		t.Fatal(err)
	}
}
