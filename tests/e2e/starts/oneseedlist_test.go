package starts

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/hostd/hostd/tests/support/testkit"
)

// TestNodesOfOneListOfSeedsFound: nodes that have one list of seeds, with their
// own address in it, found a cluster. It is where they serve other nodes by
// default.
func TestNodesOfOneListOfSeedsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a cluster of processes")
	}
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(256), 1+rand.IntN(250))
	const first = 7070 // no port of another process: the address is the test's own
	var seeds []string
	for i := range 3 {
		seeds = append(seeds, fmt.Sprintf("%s:%d", host, first+2*i+1))
	}
	var nodes []*testkit.Node
	for i := range seeds {
		n := testkit.NewNode(t, testkit.NodeOptions{
			ID: fmt.Sprintf("n%d", i+1), Listen: fmt.Sprintf("%s:%d", host, first+2*i), Shards: 3,
			Flags: []string{"--seeds", strings.Join(seeds, ","), "--bootstrap-expect", "3", "--min-members", "3"},
		})
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	for i, n := range nodes {
		if err := n.AwaitReady(); err != nil {
			t.Fatalf("%s: %v\n%s", n.ID(), err, n.Log())
		}
		if n.PeerAPI() != "http://"+seeds[i] {
			t.Errorf("%s serves other nodes at %s, the seeds say %s", n.ID(), n.PeerAPI(), seeds[i])
		}
	}
}
