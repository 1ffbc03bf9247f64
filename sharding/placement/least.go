package placement

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// LeastLeaders gives replicas to the nodes with the fewest replicas, then the
// fewest leaderships, spreads each shard over zones before anything else, and
// evens leaderships and replicas out. Ties fall to the smaller node id.
type LeastLeaders struct {
	// Threshold is the smallest difference between two nodes, in leaderships or
	// replicas, that is worth a move; default and least 2: a smaller difference
	// only changes sides.
	Threshold int
	// MaxMoves bounds the moves of replicas, and those of leaderships, that
	// one Rebalance returns; default 64.
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
	all := t.places(have)
	for range n {
		best := -1
		for _, at := range t.order {
			if s.Nodes[at].Hosts && !slices.Contains(all, at) && (best < 0 || t.cheaper(all, at, best)) {
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
		x, y := t.at(a), t.at(b)
		return cmp.Or(cmp.Compare(t.leaders[x], t.leaders[y]), cmp.Compare(t.replicas[x], t.replicas[y]), cmp.Compare(a, b))
	})
	return chosen
}

// cheaper says that a is the better home for one more replica of a shard than
// b, whose name is smaller.
func (t *tally) cheaper(have []int, a, b int) bool {
	return cmp.Or(
		cmp.Compare(t.neighbours(a, have), t.neighbours(b, have)),
		cmp.Compare(t.replicas[a], t.replicas[b]),
		cmp.Compare(t.leaders[a], t.leaders[b]),
	) < 0
}

// Evict implements Strategy. A node that may not host goes first, then the one
// whose zone is fullest, then the one with most replicas; between equals it is
// the newest replica that goes, which costs least.
func (l LeastLeaders) Evict(s *State, have, keep []sharding.NodeID) sharding.NodeID {
	t := s.tally()
	all, best := t.places(have), -1
	for i := len(have) - 1; i >= 0; i-- {
		if !slices.Contains(keep, have[i]) && (best < 0 || t.dearer(s, all, all[i], all[best])) {
			best = i
		}
	}
	if best < 0 {
		return ""
	}
	return have[best]
}

// dearer says that a shard is better without a than without b.
func (t *tally) dearer(s *State, have []int, a, b int) bool {
	return cmp.Or(
		cmp.Compare(stranger(s, a), stranger(s, b)),
		cmp.Compare(t.neighbours(a, have), t.neighbours(b, have)),
		cmp.Compare(t.replicas[a], t.replicas[b]),
	) > 0
}

// stranger is 1 for a node that may not be given replicas.
func stranger(s *State, at int) int {
	if at < len(s.Nodes) && s.Nodes[at].Hosts {
		return 0
	}
	return 1
}
