package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/workload"
)

// By default, a node rejects writes if less than 512 MiB of space are free.
// This space is enough for the data that the node must still write.
const (
	diskBytes = 1 << 30
	belowMark = 480 << 20
)

// attempt sends one command and one query to a node and returns their errors.
func attempt(t *testing.T, node *testkit.Node, id string) (send, query error) {
	t.Helper()
	c := patient(node)
	ctx := t.Context()
	_, send = c.Send(ctx, client.Command{EntityType: "counter", EntityID: "probe", Name: "add", Data: []byte(`{"amount":1}`), ID: id})
	_, query = c.Query(ctx, client.Query{EntityType: "counter", EntityID: "probe", Name: "total"})
	return send, query
}

// stored reports whether the node has written everything that it accepted to
// its store.
func stored(t *testing.T, node *testkit.Node) bool {
	t.Helper()
	backlog, told := node.Metrics()["hostd_apply_backlog_bytes"]
	if !told {
		t.Fatal("the node does not tell its backlog")
	}
	return backlog == 0
}

// fullThenFree fills the disk below the threshold, waits until the node rejects
// writes and has stored everything that it accepted, and then fills the disk
// until only left bytes are free. The node must answer reads and reject writes
// until there is space again.
func fullThenFree(t *testing.T, disk *testkit.SmallDisk, node *testkit.Node, left int64, round int) {
	t.Helper()
	disk.Fill("filler", belowMark)
	tries := 0
	node.Await("rejecting writes", func() bool {
		tries++
		send, query := attempt(t, node, fmt.Sprintf("full-%d-%d", round, tries))
		if query != nil {
			t.Fatalf("a query on a full disk: %v", query)
		}
		return client.CodeOf(send) == connect.CodeResourceExhausted
	})
	listed := func() bool {
		text, code := node.Run("node", "ls", "--addr", node.API())
		return code == 0 && strings.Contains(text, ",disk-full")
	}
	node.Await("it is listed as full", listed)
	node.Await("what was acknowledged is in the store", func() bool { return stored(t, node) })
	disk.Fill("more", left)
	for i := range 20 {
		if send, query := attempt(t, node, fmt.Sprintf("refused-%d-%d", round, i)); client.CodeOf(send) != connect.CodeResourceExhausted || query != nil {
			t.Fatalf("on a full disk a command says %v and a query %v", send, query)
		}
	}
	remove(t, disk, "filler", "more")
	node.Await("accepting writes again", func() bool {
		tries++
		send, _ := attempt(t, node, fmt.Sprintf("free-%d-%d", round, tries))
		return send == nil
	})
	node.Await("it is not listed as full any more", func() bool { return !listed() })
}

func remove(t *testing.T, disk *testkit.SmallDisk, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := os.Remove(filepath.Join(disk.Dir(), name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDisk fills the disk of a node under load, first just below the
// threshold and then completely. Each time, the node must answer reads and
// reject writes until there is space again.
func TestFullDisk(t *testing.T) {
	disk := testkit.NewSmallDisk(t, diskBytes)
	node := testkit.StartNode(t, testkit.NodeOptions{DataDir: filepath.Join(disk.Dir(), "data")})
	node.Push(workload.Types...)
	c := patient(node)
	h := history.New()
	load := workload.Start(workload.Options{Client: c, History: h, Seed: 7, Patience: testkit.Patience, Refused: []connect.Code{connect.CodeResourceExhausted}})
	for round, left := range []int64{belowMark - 1<<20, 4 << 20, 0} {
		goesOn(t, node, load, 300)
		fullThenFree(t, disk, node, left, round)
		goesOn(t, node, load, 300)
	}
	if err := load.Stop(); err != nil {
		t.Fatalf("a caller was told: %v", err)
	}
	if h.Count(history.Failed) == 0 {
		t.Error("no caller met the full disk")
	}
	settled(t, c, h)
	node.Stop()
	node.MustVerify()
	node.Start()
	settled(t, c, h)
}

// TestRestartOnFullDisk kills a node whose disk is full and starts it again. It
// must either serve its data or refuse to start and state a reason, and it must
// work as before once there is space.
func TestRestartOnFullDisk(t *testing.T) {
	disk := testkit.NewSmallDisk(t, diskBytes)
	node := testkit.StartNode(t, testkit.NodeOptions{DataDir: filepath.Join(disk.Dir(), "data")})
	node.Push(workload.Types...)
	c := patient(node)
	for round, left := range []int64{belowMark, 0} {
		h := history.New()
		load := workload.Start(workload.Options{
			Client: c, History: h, Seed: 8, Patience: testkit.Patience, Prefix: fmt.Sprintf("r%d-", round),
			Refused: []connect.Code{connect.CodeResourceExhausted},
		})
		goesOn(t, node, load, 500)
		node.Kill()
		disk.Fill("filler", left)
		if err := node.TryStart(); err != nil {
			t.Logf("with %d bytes left the node does not start: %v: %s", left, err, lastLine(node.Log()))
			if node.ExitCode() <= 0 || !strings.Contains(lastLine(node.Log()), "disk") || strings.Contains(node.Log(), "goroutine ") {
				t.Errorf("it ends with exit code %d:\n%s", node.ExitCode(), shorten(node.Log()))
			}
		} else {
			send, query := attempt(t, node, fmt.Sprintf("restart-%d", round))
			if client.CodeOf(send) != connect.CodeResourceExhausted || query != nil {
				t.Errorf("with %d bytes left a command says %v and a query %v", left, send, query)
			}
			node.Kill()
		}
		remove(t, disk, "filler")
		node.Start()
		goesOn(t, node, load, 100)
		if err := load.Stop(); err != nil {
			t.Fatalf("a caller was told: %v", err)
		}
		settled(t, c, h)
	}
}
