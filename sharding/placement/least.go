package placement

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// LeastLeaders first spreads the replicas of each shard over zones, then
// prefers the nodes with the fewest replicas, then the nodes with the fewest
// leaderships. Rebalance evens out replicas and leaderships. Ties go to the
// smaller node id.
type LeastLeaders struct {
	// Threshold is the smallest difference in leaderships or replicas between
	// two nodes that justifies a move. The default and the minimum are 2: with
	// a difference of 1, a move would only swap the two nodes.
	Threshold int
	// MaxMoves limits the replica moves, and separately the leadership
	// transfers, that one Rebalance returns. The default is 64.
	MaxMoves int
}

func (l LeastLeaders) threshold() int { return max(l.Threshold, 2) }

func (l LeastLeaders) maxMoves() int {
	if l.MaxMoves <= 0 {
		return 64
	}
	return l.MaxMoves
}

// Allocate implements Strategy.
func (l LeastLeaders) Allocate(s *State, have []sharding.NodeID, n int) []sharding.NodeID {
	t := s.tally()
	all := t.indexesOf(have)
	for range n {
		best := -1
		for _, at := range t.order {
			if s.Nodes[at].Hosts && !slices.Contains(all, at) && (best < 0 || t.isBetterHome(all, at, best)) {
				best = at
			}
		}
		if best < 0 {
			break
		}
		all = append(all, best)
	}
	chosen := make([]sharding.NodeID, 0, len(all)-len(have))
	for _, at := range all[len(have):] {
		chosen = append(chosen, s.Nodes[at].ID)
	}
	slices.SortStableFunc(chosen, func(a, b sharding.NodeID) int {
		x, y := t.indexOf(a), t.indexOf(b)
		return cmp.Or(cmp.Compare(t.leaders[x], t.leaders[y]), cmp.Compare(t.replicas[x], t.replicas[y]), cmp.Compare(a, b))
	})
	return chosen
}

// isBetterHome reports whether node a is a better place than node b for one
// more replica of a shard. b must have the smaller id and wins ties.
func (t *tally) isBetterHome(have []int, a, b int) bool {
	return cmp.Or(
		cmp.Compare(t.zoneNeighbours(a, have), t.zoneNeighbours(b, have)),
		cmp.Compare(t.replicas[a], t.replicas[b]),
		cmp.Compare(t.leaders[a], t.leaders[b]),
	) < 0
}

// Evict implements Strategy. It prefers a node that may not host replicas, then
// a node whose zone has the most replicas of the shard, then the node with the
// most replicas. Among equals it evicts the newest replica, which is the
// cheapest to lose.
func (l LeastLeaders) Evict(s *State, have, keep []sharding.NodeID) sharding.NodeID {
	t := s.tally()
	all, best := t.indexesOf(have), -1
	for i := len(have) - 1; i >= 0; i-- {
		if !slices.Contains(keep, have[i]) && (best < 0 || t.isBetterWithout(s, all, all[i], all[best])) {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	return have[best]
}

// isBetterWithout reports whether the shard is better off without a than
// without b.
func (t *tally) isBetterWithout(s *State, have []int, a, b int) bool {
	return cmp.Or(
		cmp.Compare(ineligible(s, a), ineligible(s, b)),
		cmp.Compare(t.zoneNeighbours(a, have), t.zoneNeighbours(b, have)),
		cmp.Compare(t.replicas[a], t.replicas[b]),
	) > 0
}

// ineligible returns 1 if the node may not be given replicas, and 0 otherwise.
func ineligible(s *State, at int) int {
	if at < len(s.Nodes) && s.Nodes[at].Hosts {
		return 0
	}
	return 1
}
