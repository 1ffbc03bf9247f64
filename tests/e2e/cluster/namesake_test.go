package cluster

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hostd/hostd/tests/support/testkit"
)

// Another process takes over the ID of a process that cannot be reached. When
// the first process is reachable again, it ends with exit code 1 and a log line
// that names the other process.
func TestReplacedProcessEnds(t *testing.T) {
	testkit.Long(t, "long")
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{})
	c.Push("counter")
	old := c.Node(2)
	old.Pause()
	c.Await("nobody hears n3", func() bool {
		for _, m := range c.Overview(0).GetMembers() {
			if m.GetNodeId() == "n3" {
				return !m.GetReachable()
			}
		}
		return false
	})
	later := testkit.NewNode(t, testkit.NodeOptions{
		ID: "n3", DataDir: filepath.Join(t.TempDir(), "data"), Shards: 3,
		Flags: []string{"--min-members", "3", "--seeds", strings.Join([]string{c.Node(0).API()[len("http://"):], c.Node(1).API()[len("http://"):]}, ",")},
	})
	later.Start()
	if !old.Running() {
		t.Fatal("the first process has ended already")
	}
	old.Continue()
	for end := time.Now().Add(testkit.Patience); old.Running(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the replaced process goes on:\n%s", old.Log())
		}
	}
	at := later.API()[len("http://"):]
	lines := strings.Split(strings.TrimSpace(old.Log()), "\n")
	if last := lines[len(lines)-1]; old.ExitCode() != 1 || !strings.Contains(last, "a different process with a later start runs as node n3 at "+at) || !strings.Contains(last, "node-id") {
		t.Errorf("it ends with exit code %d and says %q; the other is at %s", old.ExitCode(), last, at)
	}
	if !later.Running() {
		t.Errorf("the later process ends too: %s", later.Log())
	}
	old.MustVerify()
}
