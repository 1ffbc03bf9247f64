package disk

import (
	"context"
	"encoding/json"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// addOne adds one to a counter, once, and returns its total.
func addOne(c *client.Client, patience time.Duration) (total int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	reply, err := c.Send(ctx, client.Command{EntityType: "counter", EntityID: "c", Name: "add", Data: []byte(`{"amount":1}`)})
	if err != nil {
		return 0, err
	}
	var said struct{ Total int }
	err = json.Unmarshal(reply.Data, &said)
	return said.Total, err
}

// ended waits until the process has ended.
func ended(t *testing.T, n *testkit.Node) {
	t.Helper()
	for deadline := time.Now().Add(testkit.Patience); n.Running(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the process does not end:\n%s", n.Log())
		}
	}
}

// awaitEnd waits until the process has ended by itself, and checks that its
// error names the cause exactly once.
func awaitEnd(t *testing.T, n *testkit.Node) {
	t.Helper()
	ended(t, n)
	log := n.Log()
	if code := n.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(log, "removed") || strings.Count(log, "level=ERROR") > 3 {
		t.Errorf("it said:\n%s", log)
	}
}

// TestDirectoryIsMovedAway moves the data directory of a running node away. The
// node must acknowledge nothing that is not in the directory, and must end.
func TestDirectoryIsMovedAway(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("open files cannot be moved")
	}
	n := testkit.StartNode(t, testkit.NodeOptions{})
	n.Push("counter")
	c := n.Client(client.Options{})
	acknowledged := 0
	for acknowledged < 20 {
		total, err := addOne(c, testkit.Patience)
		if err != nil {
			t.Fatal(err)
		}
		acknowledged = total
	}
	away := n.DataDir() + "-away"
	if err := os.Rename(n.DataDir(), away); err != nil {
		t.Fatal(err)
	}
	if total, err := addOne(c, 5*time.Second); err == nil {
		t.Errorf("the node has acknowledged %d without a directory", total)
	}
	awaitEnd(t, n)
	_ = os.RemoveAll(n.DataDir()) // remove files that the node may have created since
	if err := os.Rename(away, n.DataDir()); err != nil {
		t.Fatal(err)
	}
	n.Start()
	if total, err := addOne(n.Client(client.Options{}), testkit.Patience); err != nil || total != acknowledged+1 && total != acknowledged+2 {
		t.Errorf("%d, %v, after %d were acknowledged and one was not", total, err, acknowledged)
	}
}

// TestDirectoryIsRemoved removes the data directory of an idle node, and of a
// node that is stopped at the same time. Both processes must end with an error.
func TestDirectoryIsRemoved(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("open files cannot be removed")
	}
	n := testkit.StartNode(t, testkit.NodeOptions{})
	if err := os.RemoveAll(n.DataDir()); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, n)

	n = testkit.StartNode(t, testkit.NodeOptions{Flags: []string{"--stop-timeout", "2s"}})
	n.Push("counter")
	if _, err := addOne(n.Client(client.Options{}), testkit.Patience); err != nil {
		t.Fatal(err)
	}
	n.Pause()
	if err := os.RemoveAll(n.DataDir()); err != nil {
		t.Fatal(err)
	}
	n.Signal(syscall.SIGTERM)
	n.Continue()
	ended(t, n)
	if code := n.ExitCode(); code != 1 {
		t.Errorf("it lost its directory, and ended with %d:\n%s", code, n.Log())
	}
}
