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
	load := loadOf(s)
	all := slices.Clone(have)
	for range n {
		best, found := Node{}, false
		for _, node := range load.nodes {
			if node.Hosts && !slices.Contains(all, node.ID) && (!found || load.cheaper(all, node, best) < 0) {
				best, found = node, true
			}
		}
		if !found {
			break
		}
		all = append(all, best.ID)
	}
	chosen := all[len(have):]
	slices.SortStableFunc(chosen, func(a, b sharding.NodeID) int {
		return cmp.Or(cmp.Compare(load.leaders[a], load.leaders[b]), cmp.Compare(load.replicas[a], load.replicas[b]), cmp.Compare(a, b))
	})
	return chosen
}

// cheaper compares two homes for one more replica of a shard.
func (l *load) cheaper(have []sharding.NodeID, a, b Node) int {
	return cmp.Or(
		cmp.Compare(l.crowd(with(have, "", a.ID)), l.crowd(with(have, "", b.ID))),
		cmp.Compare(l.replicas[a.ID], l.replicas[b.ID]),
		cmp.Compare(l.leaders[a.ID], l.leaders[b.ID]),
		cmp.Compare(a.ID, b.ID),
	)
}

// Evict implements Strategy. A node that may not host goes first, then the one
// whose zone is fullest, then the one with most replicas; between equals it is
// the newest replica that goes, which costs least.
func (l LeastLeaders) Evict(s *State, have, keep []sharding.NodeID) sharding.NodeID {
	load := loadOf(s)
	var best sharding.NodeID
	for i := len(have) - 1; i >= 0; i-- {
		n := have[i]
		if !slices.Contains(keep, n) && (best == "" || load.dearer(have, n, best) > 0) {
			best = n
		}
	}
	return best
}

func (l *load) dearer(have []sharding.NodeID, a, b sharding.NodeID) int {
	return cmp.Or(
		cmp.Compare(l.stranger(a), l.stranger(b)),
		cmp.Compare(l.crowd(with(have, b, "")), l.crowd(with(have, a, ""))),
		cmp.Compare(l.replicas[a], l.replicas[b]),
	)
}

// stranger is 1 for a node that may not be given replicas.
func (l *load) stranger(id sharding.NodeID) int {
	for _, n := range l.nodes {
		if n.ID == id && n.Hosts {
			return 0
		}
	}
	return 1
}
