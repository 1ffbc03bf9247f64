package placement

import (
	"slices"
	"strings"

	"github.com/hostd/hostd/sharding"
)

// tally counts what each node has, by its place: that in State.Nodes, and
// behind those one for each name that is no node's.
type tally struct {
	place    map[sharding.NodeID]int
	order    []int // of the nodes, by id
	zone     []string
	zones    bool // some nodes share a zone
	replicas []int
	leaders  []int
}

// tally counts the shards at the first question, and is kept by Put and Add.
func (s *State) tally() *tally {
	if s.counted != nil {
		return s.counted
	}
	t := &tally{place: make(map[sharding.NodeID]int, len(s.Nodes))}
	named := map[string]bool{}
	for _, n := range s.Nodes {
		t.order = append(t.order, t.add(n.ID, zoneOf(n)))
		t.zones = t.zones || named[zoneOf(n)]
		named[zoneOf(n)] = true
	}
	slices.SortFunc(t.order, func(a, b int) int { return strings.Compare(string(s.Nodes[a].ID), string(s.Nodes[b].ID)) })
	for i := range s.Shards {
		t.count(&s.Shards[i], 1)
	}
	s.counted = t
	return t
}

// Put gives the shard at index i of Shards other replicas; the slice is kept.
func (s *State) Put(i int, replicas []sharding.NodeID) {
	sh := &s.Shards[i]
	if s.counted != nil {
		s.counted.count(sh, -1)
	}
	sh.Replicas = replicas
	if s.counted != nil {
		s.counted.count(sh, 1)
	}
}

// Add adds a shard.
func (s *State) Add(sh Shard) {
	s.Shards = append(s.Shards, sh)
	if s.counted != nil {
		s.counted.count(&sh, 1)
	}
}

func (t *tally) count(sh *Shard, by int) {
	for _, n := range sh.Replicas {
		t.replicas[t.at(n)] += by
	}
	if sh.Leader != "" {
		t.leaders[t.at(sh.Leader)] += by
	}
}

// at is the place of a name.
func (t *tally) at(id sharding.NodeID) int {
	if at, known := t.place[id]; known {
		return at
	}
	return t.add(id, "")
}

func (t *tally) add(id sharding.NodeID, zone string) int {
	at := len(t.zone)
	t.place[id] = at
	t.zone, t.replicas, t.leaders = append(t.zone, zone), append(t.replicas, 0), append(t.leaders, 0)
	return at
}

func (t *tally) places(ids []sharding.NodeID) []int {
	out := make([]int, len(ids), len(ids)+8)
	for i, id := range ids {
		out[i] = t.at(id)
	}
	return out
}

// neighbours is how many of the nodes share the zone of one, which is no
// neighbour of its own.
func (t *tally) neighbours(of int, nodes []int) (n int) {
	if !t.zones {
		return 0 // nor do replicas share a node
	}
	for _, at := range nodes {
		if at != of && t.zone[at] == t.zone[of] {
			n++
		}
	}
	return n
}
