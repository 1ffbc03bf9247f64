package placement_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/placement"
)

// A state that was changed after its first use gives the same results as an
// equal state that is counted from scratch.
func TestTallyFollowsShardChanges(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 17))
		s := randomState(rng)
		names := []sharding.NodeID{"gone", "other"}
		for _, n := range s.Nodes {
			names = append(names, n.ID)
		}
		some := func() []sharding.NodeID {
			out := slices.Clone(names)
			rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
			return out[:1+rng.IntN(len(out))]
		}
		for step := range 40 {
			switch at := rng.IntN(3 + len(s.Nodes)); {
			case at == 0:
				on := some()
				s.AddShard(placement.Shard{ID: sharding.ShardID(1000 + step), Replicas: on, Leader: on[0]})
			case at > 2:
				s.Nodes[at-3].Hosts = rng.IntN(4) > 0
			case len(s.Shards) > 0:
				s.SetReplicas(rng.IntN(len(s.Shards)), some())
			}
			anew := &placement.State{Nodes: s.Nodes, Shards: s.Shards}
			have, n := some(), rng.IntN(4)
			if got, want := (placement.LeastLeaders{}).Allocate(s, have, n), (placement.LeastLeaders{}).Allocate(anew, have, n); !slices.Equal(got, want) {
				t.Fatalf("seed %d step %d: %d beside %v belong on %v, counted anew on %v", seed, step, n, have, got, want)
			}
			if got, want := (placement.LeastLeaders{}).Evict(s, have, have[:1]), (placement.LeastLeaders{}).Evict(anew, have, have[:1]); got != want {
				t.Fatalf("seed %d step %d: of %v it is best without %s, counted anew without %s", seed, step, have, got, want)
			}
		}
	}
}
