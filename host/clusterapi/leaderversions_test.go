package clusterapi

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hostd/hostd/sharding"
)

// TestLeadersSinceVersion: a client that applies the changes since its version has the
// current leaders.
func TestLeadersSinceVersion(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	b, now := newLeaderVersions(), time.Unix(100, 0)
	leaders := make([]sharding.NodeID, 9)
	read := func() []sharding.NodeID { return slices.Clone(leaders) }
	known := [3][]sharding.NodeID{}
	version := [3]string{"", "other.7", ""}
	partly := 0
	for range 500 {
		now = now.Add(lookInterval)
		if rng.IntN(2) == 0 {
			leaders[rng.IntN(len(leaders))] = sharding.NodeID([]string{"", "a", "b"}[rng.IntN(3)])
		}
		i := rng.IntN(len(known))
		changed, to, partial := b.since(version[i], now, read)
		if !partial {
			known[i] = make([]sharding.NodeID, len(leaders))
		}
		for _, s := range changed {
			known[i][s.ID] = s.Leader
		}
		if partial && len(changed) < len(leaders) {
			partly++
		}
		if version[i] == to && len(changed) > 0 {
			t.Fatalf("%d changes since the version that it has", len(changed))
		}
		if version[i] = to; !slices.Equal(known[i], leaders) {
			t.Fatalf("known %q, want %q", known[i], leaders)
		}
	}
	if partly < 300 {
		t.Errorf("only %d answers were of changes", partly)
	}
	if _, _, partial := newLeaderVersions().since(version[0], now, read); partial {
		t.Error("versions of another start were taken for its own")
	}
}
