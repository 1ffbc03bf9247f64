package disk

import (
	"slices"
	"testing"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// In a cluster, a node with a full disk gets no replicas and leads no shards.
// Commands continue on the other nodes, and the node gets its share again when
// it has space.
func TestFullNodeLeadsNothing(t *testing.T) {
	testkit.Long(t, "long")
	const fullBytes, roomyBytes = belowMark, 3 << 30 // the threshold is 512 MiB of free space
	disk := testkit.NewSmallDisk(t, fullBytes)
	c := testkit.NewCluster(t, 3, testkit.ClusterOptions{Flags: []string{"--min-members", "2"}, DataDirs: map[int]string{1: disk.Dir() + "/data"}})
	for _, n := range c.Nodes() {
		if err := n.Launch(); err != nil {
			t.Fatal(err)
		}
	}
	const n2 = 1
	holds := func() (replicas, leads int) {
		for _, s := range c.Shards(0) {
			if s.GetShardId() != 0 && slices.Contains(slices.Concat(s.GetVoters(), s.GetLearners()), "n2") {
				replicas++
			}
			if s.GetLeader() == "n2" {
				leads++
			}
		}
		return replicas, leads
	}
	for _, i := range []int{0, 2} {
		if err := c.Node(i).AwaitReady(); err != nil {
			t.Fatal(err)
		}
	}
	if replicas, leads := holds(); replicas+leads > 0 {
		t.Fatalf("%d replicas and %d leaderships were placed on a full disk", replicas, leads)
	}
	disk.Resize(roomyBytes)
	if err := c.Node(n2).AwaitReady(); err != nil {
		t.Fatal(err)
	}
	c.AwaitSpread()
	c.Push("counter")
	cl := c.Client(client.Options{Timeout: testkit.Patience})
	testkit.AddToCounters(t, cl, 1)
	disk.Resize(fullBytes)
	c.Await("n2 leads nothing", func() bool {
		_, leads := holds()
		return leads == 0
	})
	testkit.AddToCounters(t, cl, 2)
	disk.Resize(roomyBytes)
	c.AwaitSpread()
	testkit.AddToCounters(t, cl, 3)
}
