package disk

import (
	"flag"
	"fmt"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/history"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/workload"
)

var fills = flag.Int("fills", 2, "how many times a disk is filled up at once under a node with load")

// TestDiskFillsAtOnce fills the disk of a node under load to the last byte at
// once. The node must reject writes and keep running, until there is space
// again.
func TestDiskFillsAtOnce(t *testing.T) {
	testkit.Long(t, "long")
	disk := testkit.NewSmallDisk(t, diskBytes)
	node := testkit.StartNode(t, testkit.NodeOptions{DataDir: filepath.Join(disk.Dir(), "data")})
	node.Push(workload.Types...)
	c := patient(node)
	h := history.New()
	load := workload.Start(workload.Options{Client: c, History: h, Seed: 9, Patience: testkit.Patience, Refused: []connect.Code{connect.CodeResourceExhausted}})
	for round := range *fills {
		goesOn(t, node, load, 500)
		disk.FillAtOnce("filler")
		tries := 0
		node.Await("rejecting writes", func() bool {
			tries++
			send, query := attempt(t, node, fmt.Sprintf("at-once-%d-%d", round, tries))
			return client.CodeOf(send) == connect.CodeResourceExhausted && query == nil
		})
		for i := range 50 {
			send, query := attempt(t, node, fmt.Sprintf("later-%d-%d", round, i))
			if client.CodeOf(send) != connect.CodeResourceExhausted || query != nil {
				t.Fatalf("on a full disk a command says %v and a query %v", send, query)
			}
		}
		if !node.Running() {
			t.Fatalf("round %d: the node has ended:\n%s", round, shorten(node.Log()))
		}
		remove(t, disk, "filler")
	}
	goesOn(t, node, load, 300)
	if err := load.Stop(); err != nil {
		t.Fatalf("a caller was told: %v", err)
	}
	settled(t, c, h)
	node.Stop()
	node.MustVerify()
	node.Start()
	settled(t, c, h)
}
