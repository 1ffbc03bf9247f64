package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// Rebalance implements Strategy. Moves of replicas come first.
//
// A replica moves where it leaves a shared zone, else from the node with most
// replicas to one with fewer by the threshold, never into a fuller zone: the
// pair (shared zones, sum of squared loads) falls with every move, so moves
// end, and a node that joins an even cluster is given its share and no more.
//
// Leaderships follow the shortest chain of hand-overs from the fullest node
// that ends at one emptier by the threshold: where no such chain is left the
// loads are as even as the voters allow (Harvey et al., Semi-matchings for
// bipartite graphs and load balancing, 2006).
func (l LeastLeaders) Rebalance(s *State) []Move {
	b := balance{load: loadOf(s), threshold: l.threshold()}
	if b.even(s) {
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
	// The end of a chain comes first, so that a part of it is of use too.
	return append(out, leaders[:min(len(leaders), l.maxMoves())]...)
}

// balance is a state that moves are tried on.
type balance struct {
	*load
	threshold int
	shards    []Shard
	on, led   map[sharding.NodeID][]int // indexes in shards: those with a replica, those that it leads
}

// even says that nothing can be better: no two nodes are apart by the
// threshold, and no replicas share a zone.
func (b *balance) even(s *State) bool {
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
		!(b.zones && slices.ContainsFunc(s.Shards, func(sh Shard) bool { return b.crowd(sh.Replicas) > 0 }))
}

// index copies the shards, by id, and notes which nodes have them.
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

// nextReplica finds the next move of a replica and carries it out.
func (b *balance) nextReplica() (Move, bool) {
	if m, found := b.spread(); found {
		return m, true
	}
	full := b.hosts()
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
			if i := b.cargo(from, to); i >= 0 {
				return b.move(i, from, to), true
			}
		}
	}
	return Move{}, false
}

// cargo is the index of a shard whose replica may move, best one that from
// does not lead; -1 if there is none.
func (b *balance) cargo(from, to sharding.NodeID) int {
	best := -1
	for _, i := range b.on[from] {
		s := &b.shards[i]
		if s.Pinned || slices.Contains(s.Replicas, to) ||
			b.crowd(with(s.Replicas, from, to)) > b.crowd(s.Replicas) {
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

// spread finds a shard whose replicas share a zone more than they must.
func (b *balance) spread() (Move, bool) {
	for i := range b.shards {
		s := &b.shards[i]
		crowd := b.crowd(s.Replicas)
		if s.Pinned || crowd == 0 {
			continue
		}
		var best Move
		least, found := crowd, false
		for _, from := range s.Replicas {
			for _, to := range b.hosts() {
				if slices.Contains(s.Replicas, to) {
					continue
				}
				c := b.crowd(with(s.Replicas, from, to))
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
	s.Replicas = with(s.Replicas, from, to)
	s.Pinned, s.PinnedLeader = true, true // one thing at a time
	b.on[from] = slices.DeleteFunc(b.on[from], func(i int) bool { return i == shard })
	b.replicas[from]--
	b.replicas[to]++
	return Move{Shard: s.ID, From: from, To: to}
}

func (b *balance) hosts() (out []sharding.NodeID) {
	for _, n := range b.nodes {
		if n.Hosts {
			out = append(out, n.ID)
		}
	}
	return out
}

// nextLeaders finds the next chain of hand-overs and carries it out.
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

// chain looks, breadth first, for the nearest node that is emptier than start
// by the threshold, over hand-overs that are possible, and carries the chain
// to the emptiest of them out.
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

// handOver carries out the chain that ends at end.
func (b *balance) handOver(start, end sharding.NodeID, step map[sharding.NodeID]Move) []Move {
	var chain []Move
	for at := end; at != start; at = step[at].From {
		m := step[at]
		chain = append(chain, m)
		i, _ := slices.BinarySearchFunc(b.shards, m.Shard, func(s Shard, id sharding.ShardID) int { return cmp.Compare(s.ID, id) })
		s := &b.shards[i]
		s.Able = with(s.Able, m.To, m.From)
		s.Leader, s.PinnedLeader = m.To, true
		b.led[m.From] = slices.DeleteFunc(b.led[m.From], func(led int) bool { return led == i })
	}
	b.leaders[start]--
	b.leaders[end]++
	return chain
}
