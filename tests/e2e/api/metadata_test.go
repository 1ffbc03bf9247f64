package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// The metadata shard loses its majority for good, the data does not: one node
// of three loses its disk, another its replica of shard 0. Metadata is made
// anew from what two nodes record, everything acknowledged is there, and the
// cluster takes the third node and places on.
func TestLostMetadataIsRebuilt(t *testing.T) {
	testkit.Long(t, "long")
	if testing.Short() {
		t.Skip("takes a cluster of processes through more than a surface needs")
	}
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	testkit.AddToCounters(t, cl, 1)
	rejoined(t, c, 1)
	rejoined(t, c, 2)
	running(t, c.Node(0), "recover", c.Node(0).DataDir(), "--inspect", "--out", filepath.Join(t.TempDir(), "x"))
	c.KillAll()
	if err := os.RemoveAll(c.Node(2).DataDir()); err != nil {
		t.Fatal(err)
	}
	recovered(t, c.Node(1), "--rejoin-metadata")

	dir := t.TempDir()
	files := []string{filepath.Join(dir, "n1.json"), filepath.Join(dir, "n2.json")}
	recovered(t, c.Node(0), "--inspect", "--out", files[0])
	recovered(t, c.Node(1), "--inspect", "--out", files[1])
	refused(t, c.Node(0), "was not found", "--rebuild-metadata", "--from", files[0])
	refused(t, c.Node(0), "there is no file of this node", "--rebuild-metadata", "--from", files[1])
	refused(t, c.Node(0), "belongs to cluster another", "--rebuild-metadata", "--from", files[0], another(t, files[1]))
	for range 2 { // a repetition changes nothing
		recovered(t, c.Node(0), "--rebuild-metadata", "--from", files[0], files[1])
	}
	recovered(t, c.Node(1), "--rejoin-metadata")
	c.Node(0).MustVerify()
	c.Node(1).MustVerify()

	c.Start()
	testkit.AddToCounters(t, cl, 2)
	rejoined(t, c, 1)
	rejoined(t, c, 2)
	if o := c.Overview(0); len(o.GetMembers()) != 3 {
		t.Errorf("the cluster is %v", o)
	}
	// Modules are bound as before, others can be, and every node counts.
	c.Push("account")
	c.Kill(0)
	testkit.AddToCounters(t, c.Node(2).Client(client.Options{Timeout: testkit.Patience}), 3)
	c.Node(0).Start()
	// A node whose files are old by now is not taken back.
	c.StopAll()
	refused(t, c.Node(0), "inspect", "--rebuild-metadata", "--from", files[0], files[1])
	for _, n := range c.Nodes() {
		n.MustVerify()
	}
	c.Start()
	c.Add("--min-members", "3")
	testkit.AddToCounters(t, cl, 4)
}

func running(t *testing.T, n *testkit.Node, args ...string) {
	t.Helper()
	if out, code := n.Run(args...); code == 0 || !strings.Contains(out, "in use by another process") {
		t.Errorf("%s of a running node: exit code %d\n%s", args, code, out)
	}
}

// recovered runs hostd recover on a node's directory.
func recovered(t *testing.T, n *testkit.Node, args ...string) string {
	t.Helper()
	out, code := n.Run(append([]string{"recover", n.DataDir()}, args...)...)
	if code != 0 {
		t.Fatalf("recover %s: exit code %d\n%s", args, code, out)
	}
	return out
}

func refused(t *testing.T, n *testkit.Node, because string, args ...string) {
	t.Helper()
	out, code := n.Run(append([]string{"recover", n.DataDir()}, args...)...)
	if code == 0 || !strings.Contains(out, because) {
		t.Errorf("recover %s: exit code %d, want a refusal: %s\n%s", args, code, because, out)
	}
}

// another is the file as if it were of another cluster.
func another(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, `  "clusterId":`) {
			lines[i] = `  "clusterId": "another",`
		}
	}
	out := name + ".another"
	if err := os.WriteFile(out, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}
