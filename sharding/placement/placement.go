// Package placement decides where replicas and leaders of shards best live. It
// is pure: a state goes in, node names and moves come out, and equal states
// give equal answers. It never acts, keeps nothing between calls, and starts no
// goroutine; package coordinator acts on what it says.
package placement

import (
	"slices"
	"strings"

	"github.com/hostd/hostd/sharding"
)

// Node is a node as placement sees it.
type Node struct {
	ID sharding.NodeID
	// Zone names what fails together; a node without one is a zone of its own.
	Zone string
	// Hosts says that the node may be given replicas, Leads that it may be
	// given leaderships.
	Hosts, Leads bool
}

// Shard is a shard with a placement.
type Shard struct {
	ID sharding.ShardID
	// Replicas are the nodes that hold it, oldest replica first, with those
	// that are being built and without those that are leaving.
	Replicas []sharding.NodeID
	// Leader is the node that leads it, empty if none is known. Able are the
	// other nodes that could take the lead at once.
	Leader sharding.NodeID
	Able   []sharding.NodeID
	// Pinned says that its replicas are not to be moved now, PinnedLeader the
	// same of its leader. They count all the same.
	Pinned, PinnedLeader bool
}

// State is what placement decides upon. Allocate and Evict count its shards
// once, at the first question: after that the nodes keep their names and zones,
// the replicas change by Put, and shards are added by Add. It belongs to one
// goroutine at a time.
type State struct {
	Nodes  []Node
	Shards []Shard

	counted *tally
}

// Move is a replica, or a leadership, that should be elsewhere.
type Move struct {
	Shard    sharding.ShardID
	From, To sharding.NodeID
	Leader   bool
}

// Strategy is a way to place. Implementations are pure and deterministic, and
// change nothing that they are given.
type Strategy interface {
	// Allocate names up to n hosts for further replicas of a shard that has
	// those on the nodes have; the best leader comes first. Fewer than n means
	// that there are no more.
	Allocate(s *State, have []sharding.NodeID, n int) []sharding.NodeID
	// Evict names the node among have, a shard's, oldest replica first, that
	// the shard is best without; never one of keep. It is empty if all are to
	// be kept.
	Evict(s *State, have, keep []sharding.NodeID) sharding.NodeID
	// Rebalance names the moves that bring the state nearest to balance, most
	// useful first, at most as many as the strategy bounds, and none in a
	// state that is balanced. Carrying out all of them and asking again ends.
	Rebalance(s *State) []Move
}

// load counts what each node has.
type load struct {
	nodes    []Node // by id
	zone     map[sharding.NodeID]string
	zones    bool // some nodes share a zone
	replicas map[sharding.NodeID]int
	leaders  map[sharding.NodeID]int
}

func loadOf(s *State) *load {
	l := &load{
		nodes: slices.Clone(s.Nodes), zone: make(map[sharding.NodeID]string, len(s.Nodes)),
		replicas: make(map[sharding.NodeID]int, len(s.Nodes)), leaders: make(map[sharding.NodeID]int, len(s.Nodes)),
	}
	slices.SortFunc(l.nodes, func(a, b Node) int { return strings.Compare(string(a.ID), string(b.ID)) })
	named := map[string]bool{}
	for _, n := range l.nodes {
		zone := zoneOf(n)
		l.zone[n.ID] = zone
		l.zones = l.zones || named[zone]
		named[zone] = true
	}
	for i := range s.Shards {
		for _, n := range s.Shards[i].Replicas {
			l.replicas[n]++
		}
		if leader := s.Shards[i].Leader; leader != "" {
			l.leaders[leader]++
		}
	}
	return l
}

// zoneOf separates the zones that were named from those that nodes are alone
// in.
func zoneOf(n Node) string {
	if n.Zone == "" {
		return "node/" + string(n.ID)
	}
	return "zone/" + n.Zone
}

// crowd is the number of pairs of replicas that share a zone.
func (l *load) crowd(nodes []sharding.NodeID) (pairs int) {
	if !l.zones {
		return 0 // nor do replicas share a node
	}
	for i, a := range nodes {
		for _, b := range nodes[:i] {
			if l.zone[a] == l.zone[b] {
				pairs++
			}
		}
	}
	return pairs
}

// with returns the nodes with to in the place of from; an empty name stands
// for nobody.
func with(nodes []sharding.NodeID, from, to sharding.NodeID) []sharding.NodeID {
	out := make([]sharding.NodeID, 0, len(nodes)+1)
	for _, n := range nodes {
		if n != from {
			out = append(out, n)
		}
	}
	if to != "" {
		out = append(out, to)
	}
	return out
}
