package api

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// The metadata shard permanently loses its majority, but the data shards do
// not: one node of three loses its disk, and another node its replica of shard
// 0. The metadata is rebuilt from the records of two nodes. All acknowledged
// data is still there, and the cluster accepts the third node and continues to
// place replicas.
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
	refused(t, c.Node(0), "the file of this node", "--rebuild-metadata", "--from", files[1])
	refused(t, c.Node(0), "belongs to cluster another", "--rebuild-metadata", "--from", files[0], another(t, files[1]))
	for range 2 { // running it again changes nothing
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
	// The activations are as before, new modules can be activated, and every
	// node works.
	c.Push("account")
	c.Kill(0)
	testkit.AddToCounters(t, c.Node(2).Client(client.Options{Timeout: testkit.Patience}), 3)
	c.Node(0).Start()
	// A rebuild from outdated files is rejected.
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

// another returns the name of a copy of the file with a different cluster ID.
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
