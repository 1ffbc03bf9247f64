package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// Rebalance implements Strategy. It plans replica moves first, then leadership
// transfers.
//
// Replicas: a move either separates replicas that share a zone, or takes a
// replica from the node with the most replicas to a node that has fewer by at
// least the threshold. A move never goes into a zone with more replicas of the
// shard. Every move lowers the pair (zone conflicts, sum of squared loads), so
// the loop terminates, and a node that joins a balanced cluster receives its
// share and no more.
//
// Leaderships: a leader can only move to a voter of its shard, so the target
// may not be reachable in one transfer. Rebalance looks for the shortest chain
// of transfers from the node with the most leaderships to a node that has fewer
// by at least the threshold. If no such chain is left, leaderships are as even
// as the placement of voters allows (Harvey et al., Semi-matchings for
// bipartite graphs and load balancing, 2006).
func (l LeastLeaders) Rebalance(s *State) []Move {
	b := balance{load: loadOf(s), threshold: l.threshold()}
	if b.isBalanced(s) {
		return nil
	}
	b.index(s)
	var out []Move
	for len(out) < l.maxMoves() {
		m, found := b.nextReplica()
		if !found {
			break
		}
		out = append(out, m)
	}
	var leaders []Move
	for len(leaders) < l.maxMoves() {
		chain := b.nextLeaders()
		if len(chain) == 0 {
			break
		}
		leaders = append(leaders, chain...)
	}
	// The end of a chain comes first, so that a truncated chain still helps.
	return append(out, leaders[:min(len(leaders), l.maxMoves())]...)
}

// balance is the working copy of a state to which planned moves are applied.
type balance struct {
	*load
	threshold int
	shards    []Shard
	on, led   map[sharding.NodeID][]int // indexes into shards: shards with a replica on the node, shards led by the node
}

// isBalanced reports whether no move can improve the state: no two nodes differ
// by the threshold and no replicas of a shard share a zone.
func (b *balance) isBalanced(s *State) bool {
	apart := func(count map[sharding.NodeID]int, counts func(Node) bool) bool {
		least, most := math.MaxInt, 0
		for _, n := range b.nodes {
			if counts(n) {
				least, most = min(least, count[n.ID]), max(most, count[n.ID])
			}
		}
		return most-least >= b.threshold && least <= most
	}
	return !apart(b.replicas, func(n Node) bool { return n.Hosts }) && !apart(b.leaders, func(n Node) bool { return n.Leads }) &&
		!(b.sharedZones && slices.ContainsFunc(s.Shards, func(sh Shard) bool { return b.zoneConflicts(sh.Replicas) > 0 }))
}

// index copies the shards, sorted by id, and indexes them by node.
func (b *balance) index(s *State) {
	b.shards = slices.Clone(s.Shards)
	slices.SortFunc(b.shards, func(x, y Shard) int { return cmp.Compare(x.ID, y.ID) })
	b.on, b.led = map[sharding.NodeID][]int{}, map[sharding.NodeID][]int{}
	for i := range b.shards {
		sh := &b.shards[i]
		for _, n := range sh.Replicas {
			b.on[n] = append(b.on[n], i)
		}
		if sh.Leader != "" {
			b.led[sh.Leader] = append(b.led[sh.Leader], i)
		}
	}
}

// nextReplica finds the next replica move and applies it.
func (b *balance) nextReplica() (Move, bool) {
	if m, found := b.nextSpreadMove(); found {
		return m, true
	}
	full := b.hostIDs()
	empty := slices.Clone(full)
	slices.SortStableFunc(full, func(x, y sharding.NodeID) int { return cmp.Compare(b.replicas[y], b.replicas[x]) })
	slices.SortStableFunc(empty, func(x, y sharding.NodeID) int { return cmp.Compare(b.replicas[x], b.replicas[y]) })
	for _, from := range full {
		if b.replicas[from]-b.replicas[empty[0]] < b.threshold {
			break
		}
		for _, to := range empty {
			if b.replicas[from]-b.replicas[to] < b.threshold {
				break
			}
			if i := b.movableShard(from, to); i >= 0 {
				return b.move(i, from, to), true
			}
		}
	}
	return Move{}, false
}

// movableShard returns the index of a shard whose replica may move, preferably
// a shard that from does not lead, or -1 if there is none.
func (b *balance) movableShard(from, to sharding.NodeID) int {
	best := -1
	for _, i := range b.on[from] {
		s := &b.shards[i]
		if s.Pinned || slices.Contains(s.Replicas, to) ||
			b.zoneConflicts(replaceNode(s.Replicas, from, to)) > b.zoneConflicts(s.Replicas) {
			continue
		}
		if s.Leader != from {
			return i
		}
		if best < 0 {
			best = i
		}
	}
	return best
}

// nextSpreadMove finds a shard with more replicas in one zone than necessary,
// and applies the move that spreads them best.
func (b *balance) nextSpreadMove() (Move, bool) {
	for i := range b.shards {
		s := &b.shards[i]
		crowd := b.zoneConflicts(s.Replicas)
		if s.Pinned || crowd == 0 {
			continue
		}
		var best Move
		least, found := crowd, false
		for _, from := range s.Replicas {
			for _, to := range b.hostIDs() {
				if slices.Contains(s.Replicas, to) {
					continue
				}
				c := b.zoneConflicts(replaceNode(s.Replicas, from, to))
				if c < least || found && c == least && b.replicas[to]-b.replicas[from] < b.replicas[best.To]-b.replicas[best.From] {
					least, found = c, true
					best = Move{From: from, To: to}
				}
			}
		}
		if found {
			return b.move(i, best.From, best.To), true
		}
	}
	return Move{}, false
}

func (b *balance) move(shard int, from, to sharding.NodeID) Move {
	s := &b.shards[shard]
	s.Replicas = replaceNode(s.Replicas, from, to)
	s.Pinned, s.PinnedLeader = true, true // at most one move per shard
	b.on[from] = slices.DeleteFunc(b.on[from], func(i int) bool { return i == shard })
	b.replicas[from]--
	b.replicas[to]++
	return Move{Shard: s.ID, From: from, To: to}
}

func (b *balance) hostIDs() (out []sharding.NodeID) {
	for _, n := range b.nodes {
		if n.Hosts {
			out = append(out, n.ID)
		}
	}
	return out
}

// nextLeaders finds the next chain of leadership transfers and applies it.
func (b *balance) nextLeaders() []Move {
	var from []sharding.NodeID
	for _, n := range b.nodes {
		if n.Leads {
			from = append(from, n.ID)
		}
	}
	slices.SortStableFunc(from, func(x, y sharding.NodeID) int { return cmp.Compare(b.leaders[y], b.leaders[x]) })
	for _, start := range from {
		if b.leaders[start]-b.leaders[from[len(from)-1]] < b.threshold {
			break
		}
		if chain := b.chain(start); len(chain) > 0 {
			return chain
		}
	}
	return nil
}

// chain searches breadth first, along possible transfers, for the nearest node
// that has fewer leaderships than start by the threshold. If several nodes are
// equally near, it picks the node with the fewest leaderships, and applies the
// chain.
func (b *balance) chain(start sharding.NodeID) []Move {
	step := map[sharding.NodeID]Move{start: {}}
	leads := map[sharding.NodeID]bool{}
	for _, n := range b.nodes {
		leads[n.ID] = n.Leads
	}
	for ring := []sharding.NodeID{start}; len(ring) > 0; {
		var next []sharding.NodeID
		for _, at := range ring {
			for _, i := range b.led[at] {
				s := &b.shards[i]
				if s.PinnedLeader {
					continue
				}
				for _, to := range s.Able {
					if _, seen := step[to]; !seen && leads[to] {
						step[to] = Move{Shard: s.ID, From: at, To: to, Leader: true}
						next = append(next, to)
					}
				}
			}
		}
		slices.SortFunc(next, func(x, y sharding.NodeID) int {
			return cmp.Or(cmp.Compare(b.leaders[x], b.leaders[y]), cmp.Compare(x, y))
		})
		if len(next) > 0 && b.leaders[start]-b.leaders[next[0]] >= b.threshold {
			return b.handOver(start, next[0], step)
		}
		ring = next
	}
	return nil
}

// handOver applies the chain of transfers that ends at node end.
func (b *balance) handOver(start, end sharding.NodeID, step map[sharding.NodeID]Move) []Move {
	var chain []Move
	for at := end; at != start; at = step[at].From {
		m := step[at]
		chain = append(chain, m)
		i, _ := slices.BinarySearchFunc(b.shards, m.Shard, func(s Shard, id sharding.ShardID) int { return cmp.Compare(s.ID, id) })
		s := &b.shards[i]
		s.Able = replaceNode(s.Able, m.To, m.From)
		s.Leader, s.PinnedLeader = m.To, true
		b.led[m.From] = slices.DeleteFunc(b.led[m.From], func(led int) bool { return led == i })
	}
	b.leaders[start]--
	b.leaders[end]++
	return chain
}
