// Package disk takes from a node what it stands on, power, disk space and
// whole files, and checks that it serves what it acknowledged or refuses to
// serve, and never anything else. It has tests only.
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

// verdictTime is what the checker of histories gets for one entity.
const verdictTime = time.Minute

// goesOn waits until that many more calls have been answered.
func goesOn(t *testing.T, node *testkit.Node, load *workload.Load, more int) {
	t.Helper()
	target := load.Acknowledged() + more
	node.Await("the load goes on", func() bool { return load.Acknowledged() >= target || load.Fault() != nil })
	if err := load.Fault(); err != nil {
		t.Fatalf("a caller was told: %v", err)
	}
}

// patient is a client for the time after a fault.
func patient(node *testkit.Node) *client.Client {
	return node.Client(client.Options{Timeout: testkit.Patience, MaxBackoff: 50 * time.Millisecond})
}

// settled checks a whole history against a node that is left alone.
func settled(t *testing.T, c *client.Client, h *history.History) {
	t.Helper()
	if _, err := workload.ReadBack(t.Context(), c, h); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Linearizable(verdictTime, "account", "chain"); err != nil {
		t.Fatal(err)
	}
}
