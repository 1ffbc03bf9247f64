package cluster

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hostd/hostd/tests/support/loopback"
	"github.com/hostd/hostd/tests/support/testkit"
)

// otherClock is a planted fault: a file in the node's directory sets the error
// of the node's clock.
const otherClock = "e2e/cluster/planted/other-clock.txt"

func setClock(t *testing.T, n *testkit.Node, ahead string) {
	t.Helper()
	if err := os.MkdirAll(n.DataDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.DataDir(), "clock-ahead"), []byte(ahead), 0o600); err != nil {
		t.Fatal(err)
	}
}

// awaitReason waits until a node is not ready and reports all the given
// reasons.
func awaitReason(t *testing.T, n *testkit.Node, reasons ...string) {
	t.Helper()
	n.Until("readyz names the cause", func() error {
		status, body := readyz(t, n)
		if status != http.StatusServiceUnavailable {
			return fmt.Errorf("%d %s", status, body)
		}
		for _, want := range reasons {
			if !strings.Contains(body, want) {
				return fmt.Errorf("%q is missing in %s", want, body)
			}
		}
		return nil
	})
}

// TestWrongClockIsReported checks that a node that starts with a wrong clock
// reports the cause and the difference on /readyz.
func TestWrongClockIsReported(t *testing.T) {
	c := testkit.StartCluster(t, nodes, testkit.ClusterOptions{Planted: []string{otherClock}})
	last := c.Node(nodes - 1)

	last.Stop()
	setClock(t, last, "2h")
	if err := last.Launch(); err != nil {
		t.Fatal(err)
	}
	awaitReason(t, last, "other nodes reject this start", "node n3 started in the future, ", "correct the wrong clock")
	if _, body := readyz(t, last); !twoHours.MatchString(body) {
		t.Errorf("two hours are not named: %s", body)
	}
	last.Kill()
	setClock(t, last, "0s")
	last.Start()

	stranger := func(id, ahead string) *testkit.Node {
		n := testkit.NewNode(t, testkit.NodeOptions{
			ID: id, Listen: loopback.Host() + ":7070", Planted: []string{otherClock}, Shards: shards, Flags: []string{"--seeds", c.Seed(0)},
		})
		setClock(t, n, ahead)
		return n
	}
	ahead := stranger("ahead", "2h")
	if err := ahead.TryStart(); err == nil {
		t.Fatal("a node whose clock is two hours ahead was admitted")
	}
	if text := ahead.Log(); ahead.ExitCode() != 1 || !strings.Contains(text, "node ahead started in the future, ") || !twoHours.MatchString(text) {
		t.Errorf("exit code %d, it said %s", ahead.ExitCode(), text)
	}

	behind := stranger("behind", "-2h")
	if err := behind.Launch(); err != nil {
		t.Fatal(err)
	}
	awaitReason(t, behind, "the node is catching up", "started in the future, ", "ahead of the clock of node behind")
	if _, body := readyz(t, behind); !twoHours.MatchString(body) {
		t.Errorf("two hours are not named: %s", body)
	}
}

// twoHours matches the reported error of a clock that is two hours ahead: an
// incarnation is up to four seconds ahead of its node's clock, and the
// remaining time decreases.
var twoHours = regexp.MustCompile(`in the future, (2h0m|1h5\dm)`)

// TestNodeThatLeavesIsNotReady checks that by the time the leave command
// returns, the leaving node reports to load balancers that it is not ready.
func TestNodeThatLeavesIsNotReady(t *testing.T) {
	c := testkit.StartCluster(t, nodes, testkit.ClusterOptions{})
	n := c.Add()
	if text, code := c.Node(0).Run("node", "leave", n.ID(), "--yes", "--addr", c.Node(0).Address()); code != 0 {
		t.Fatalf("exit code %d: %s", code, text)
	}
	if status, body := readyz(t, n); status != http.StatusServiceUnavailable || !strings.Contains(body, "leaving its cluster") && !strings.Contains(body, "has left its cluster") {
		t.Errorf("%d %s", status, body)
	}
	awaitReason(t, n, "has left its cluster")
}
