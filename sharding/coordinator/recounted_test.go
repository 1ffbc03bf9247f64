package coordinator_test

import (
	"fmt"
	"slices"

	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/placement"
)

// recounted wraps the product's strategy and checks that each result equals the
// result for a state that is counted from scratch.
type recounted struct{ placement.LeastLeaders }

func (r recounted) Allocate(s *placement.State, have []sharding.NodeID, n int) []sharding.NodeID {
	got := r.LeastLeaders.Allocate(s, have, n)
	if want := r.LeastLeaders.Allocate(uncounted(s), have, n); !slices.Equal(got, want) {
		panic(fmt.Sprintf("replicas beside %v belong on %v, counted anew on %v", have, got, want))
	}
	return got
}

func (r recounted) Evict(s *placement.State, have, keep []sharding.NodeID) sharding.NodeID {
	got := r.LeastLeaders.Evict(s, have, keep)
	if want := r.LeastLeaders.Evict(uncounted(s), have, keep); got != want {
		panic(fmt.Sprintf("of %v it is best without %s, counted anew without %s", have, got, want))
	}
	return got
}

func uncounted(s *placement.State) *placement.State {
	return &placement.State{Nodes: s.Nodes, Shards: s.Shards}
}
