// Package starts starts nodes of which none or several are configured to
// bootstrap the cluster, or that have an old copy of their directory. It checks
// which node bootstraps the cluster and which nodes may vote. It contains only
// tests.
package starts

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/hostd/hostd/tests/support/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Main(m)) }

// notReady returns the reason why a node is not ready; empty if it is ready or
// does not answer.
func notReady(t *testing.T, n *testkit.Node) string {
	t.Helper()
	res, err := http.Get(n.API() + "/readyz")
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode == http.StatusOK {
		return ""
	}
	return string(text)
}

// votes waits until a node votes in every shard.
func votes(t *testing.T, c *testkit.Cluster, place int) {
	t.Helper()
	id := c.Node(place).ID()
	c.Await(id+" votes in every shard", func() bool {
		shards := c.Shards(place)
		for _, s := range shards {
			if !strings.Contains(strings.Join(s.GetVoters(), ","), id) {
				return false
			}
		}
		return len(shards) > 0
	})
}

// A node without files to reload survives a SIGHUP.
func TestHangupWithoutFilesIsLogged(t *testing.T) {
	n := testkit.NewNode(t, testkit.NodeOptions{})
	n.Start()
	n.Hangup()
	n.Await("the signal is logged", func() bool { return strings.Contains(n.Log(), "SIGHUP: nothing to reload") })
	if out, code := n.Run("module", "ls", "--addr", n.API()); code != 0 {
		t.Errorf("after the signal: exit code %d, %s", code, out)
	}
	n.Stop()
}
