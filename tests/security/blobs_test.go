package security

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hostd/hostd/tests/support/testkit"
)

// TestStoredModulesAreAudited checks that a module that a node stores
// on other nodes leaves two lines in the audit log of each, which name that
// node and the uploader. A node that fetches a module leaves a line at the node
// that it asks.
func TestStoredModulesAreAudited(t *testing.T) {
	token, file := tokens(t, "root")
	c := testkit.NewCluster(t, 3, testkit.ClusterOptions{Token: token["root"], Flags: []string{"--auth", "required", "--token-file", file, "--admin", "full", "--audit", "all"}})
	c.Start()
	c.Push("counter")
	lines := func(texts ...string) (found int) {
		for _, n := range c.Nodes() {
			log, err := os.ReadFile(filepath.Join(n.DataDir(), "audit", "audit.log"))
			if err != nil {
				t.Fatal(err)
			}
		line:
			for line := range strings.Lines(string(log)) {
				for _, text := range texts {
					if !strings.Contains(line, text) {
						continue line
					}
				}
				found++
			}
		}
		return found
	}
	const put = `"method":"/hostd.peer.v1.PeerService/PutBlob","verb":"deploy"`
	by := `"principal":{"kind":"token","name":"root"},"via":"node:`
	c.Node(0).Await("two nodes have the module of another one", func() bool {
		stored := lines(by, put, `"stage":"complete"`, `"code":"ok"`)
		fetched := lines(`"via":"node:`, `"method":"/hostd.peer.v1.PeerService/GetBlob","verb":"download"`, `"target":"digest=`)
		return stored > 0 && stored+fetched >= 2 && stored == lines(by, put, `"stage":"received"`, `"target":"digest=`, " size=")
	})
}
