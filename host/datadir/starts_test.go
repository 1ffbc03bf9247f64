package datadir

import (
	"fmt"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/staledisk"
)

// TestStartsMakeRoomForNewNodes: a cluster may have had any number of nodes.
// Beyond the limit, a node forgets starts that the metadata has recorded, and
// no others.
func TestStartsMakeRoomForNewNodes(t *testing.T) {
	dir := t.TempDir()
	s, err := OpenStarts(dir)
	if err != nil {
		t.Fatal(err)
	}
	metadata := map[sharding.NodeID]uint64{"n1": 4}
	record := func(node string, incarnation uint64) (uint64, error) {
		return s.RecordStart(staledisk.Start{Node: sharding.NodeID(node), Attested: incarnation - 1, Requested: incarnation}, func(n sharding.NodeID) uint64 { return metadata[n] })
	}
	for i := range maxStarts {
		if _, err := record(fmt.Sprint("n", i), 5); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := record("one-more", 5); err != errTooManyStarts {
		t.Fatalf("the metadata has none of the starts: %v", err)
	}
	for i := 100; i < maxStarts; i++ {
		metadata[sharding.NodeID(fmt.Sprint("n", i))] = 5
	}
	if _, err := record("one-more", 5); err != nil {
		t.Fatal(err)
	}
	if s, err = OpenStarts(dir); err != nil || len(s.known) != 101 {
		t.Fatalf("%d starts are recorded: %v", len(s.known), err)
	}
	// An older copy of a disk is recognized in both cases.
	for _, node := range []string{"n1", "n500", "one-more"} {
		if latest, err := record(node, 3); latest != 5 || err != nil {
			t.Errorf("%s: latest start %d, want 5: %v", node, latest, err)
		}
	}
}
