package host_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// TestShadowsAreSummedOverNodes: every node reports the sum over all nodes of
// the commands that the shadow compared.
func TestShadowsAreSummedOverNodes(t *testing.T) {
	const entities = 12 // enough for every shard to have some
	nodes := startCluster(t, 3, 3)
	ctx := t.Context()
	clients := make([]*client.Client, len(nodes))
	for i, n := range nodes {
		clients[i] = dialNode(t, n)
	}
	kept := guest.Module{Bad: "kept"}
	if _, err := clients[0].Upload(ctx, kept.Build(), true); err != nil {
		t.Fatal(err)
	}
	kept.Frames = abi.AppendReject(nil, "no", "not today")
	kept.Handle = guest.Span(guest.FramesAt, uint32(len(kept.Frames)))
	up, err := clients[0].Upload(ctx, kept.Build(), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clients[2].PutSetting(ctx, "entity.kept.shadow", up.Digest+" 100%"); err != nil {
		t.Fatal(err)
	}
	sum := func(at int) uint64 {
		res, err := client.RolloutState(ctx, clients[at], "kept")
		s := res.GetShadow()
		if err != nil || s.GetDigest() != up.Digest || s.GetDiffering() != s.GetCompared() {
			t.Fatalf("node %d: %v, %v", at, res, err)
		}
		return s.GetCompared() + s.GetSkipped() + s.GetDropped()
	}
	// Each command is counted once every node knows about the shadow.
	deadline := time.Now().Add(2 * testkit.Patience)
	for whole := false; !whole; {
		before := sum(0)
		for i := range entities {
			if _, err := clients[i%len(nodes)].Send(ctx, client.Command{EntityType: "kept", EntityID: fmt.Sprint("e", i), Name: "go"}); err != nil {
				t.Fatal(err)
			}
		}
		for until := time.Now().Add(5 * time.Second); !whole && time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
			whole = true
			for at := range nodes {
				whole = whole && sum(at) >= before+entities
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("of %d commands node 0 counts %d", entities, sum(0)-before)
		}
	}
}
