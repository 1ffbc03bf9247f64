package placement

import (
	"slices"
	"strings"

	"github.com/hostd/hostd/sharding"
)

// tally counts replicas and leaderships per node. Nodes are identified by their
// index in State.Nodes; ids that are not in State.Nodes get the following
// indexes.
type tally struct {
	place       map[sharding.NodeID]int
	order       []int // node indexes, sorted by id
	zone        []string
	sharedZones bool // at least two nodes share a zone
	replicas    []int
	leaders     []int
}

// tally returns the counts. The first call counts all shards; SetReplicas and
// AddShard keep the counts up to date.
func (s *State) tally() *tally {
	if s.cachedTally != nil {
		return s.cachedTally
	}
	t := &tally{place: make(map[sharding.NodeID]int, len(s.Nodes))}
	named := map[string]bool{}
	for _, n := range s.Nodes {
		t.order = append(t.order, t.add(n.ID, zoneOf(n)))
		t.sharedZones = t.sharedZones || named[zoneOf(n)]
		named[zoneOf(n)] = true
	}
	slices.SortFunc(t.order, func(a, b int) int { return strings.Compare(string(s.Nodes[a].ID), string(s.Nodes[b].ID)) })
	for i := range s.Shards {
		t.count(&s.Shards[i], 1)
	}
	s.cachedTally = t
	return t
}

// SetReplicas sets the replicas of Shards[i] and takes ownership of the slice.
func (s *State) SetReplicas(i int, replicas []sharding.NodeID) {
	sh := &s.Shards[i]
	if s.cachedTally != nil {
		s.cachedTally.count(sh, -1)
	}
	sh.Replicas = replicas
	if s.cachedTally != nil {
		s.cachedTally.count(sh, 1)
	}
}

// AddShard adds a shard.
func (s *State) AddShard(sh Shard) {
	s.Shards = append(s.Shards, sh)
	if s.cachedTally != nil {
		s.cachedTally.count(&sh, 1)
	}
}

func (t *tally) count(sh *Shard, by int) {
	for _, n := range sh.Replicas {
		t.replicas[t.indexOf(n)] += by
	}
	if sh.Leader != "" {
		t.leaders[t.indexOf(sh.Leader)] += by
	}
}

// indexOf returns the index of a node id, adding it if it is new.
func (t *tally) indexOf(id sharding.NodeID) int {
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

func (t *tally) indexesOf(ids []sharding.NodeID) []int {
	out := make([]int, len(ids), len(ids)+8)
	for i, id := range ids {
		out[i] = t.indexOf(id)
	}
	return out
}

// zoneNeighbours returns how many of the nodes share the zone of node of, not
// counting itself.
func (t *tally) zoneNeighbours(of int, nodes []int) (n int) {
	if !t.sharedZones {
		return 0 // replicas never share a node
	}
	for _, at := range nodes {
		if at != of && t.zone[at] == t.zone[of] {
			n++
		}
	}
	return n
}
