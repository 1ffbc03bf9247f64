// Package placement decides on which nodes the replicas and leaders of shards
// should be. It is pure: it maps a state to node ids and moves, and equal
// states give equal results. It keeps nothing between calls and starts no
// goroutine. Package coordinator carries out its decisions.
package placement

import (
	"slices"
	"strings"

	"github.com/hostd/hostd/sharding"
)

// Node is a node as placement sees it.
type Node struct {
	ID sharding.NodeID
	// Zone is the failure domain of the node. A node without a zone is a zone
	// of its own.
	Zone string
	// Hosts means that the node may be given replicas, and Leads that it may be
	// given leaderships.
	Hosts, Leads bool
}

// Shard is a shard with a placement.
type Shard struct {
	ID sharding.ShardID
	// Replicas are the nodes that hold the shard, oldest replica first,
	// including replicas that are being built and excluding replicas that are
	// leaving.
	Replicas []sharding.NodeID
	// Leader is the node that leads the shard, empty if unknown. Able are the
	// other nodes that could take over leadership immediately.
	Leader sharding.NodeID
	Able   []sharding.NodeID
	// Pinned means that the replicas must not be moved now, and PinnedLeader that
	// the leadership must not be moved now. Pinned shards still count toward the
	// load.
	Pinned, PinnedLeader bool
}

// State is the input of a Strategy. Allocate and Evict count the shards on
// first use. After that, the ids and zones of Nodes must not change, and the
// shards may only be changed with SetReplicas and AddShard. A State belongs to
// one goroutine at a time.
type State struct {
	Nodes  []Node
	Shards []Shard

	cachedTally *tally
}

// Move moves a replica or, if Leader is set, a leadership from one node to
// another.
type Move struct {
	Shard    sharding.ShardID
	From, To sharding.NodeID
	Leader   bool
}

// Strategy decides where replicas and leaders go. Implementations are pure and
// deterministic and do not modify their arguments.
type Strategy interface {
	// Allocate returns up to n nodes for further replicas of a shard that
	// already has replicas on the nodes in have. The best leader comes first.
	// Allocate returns fewer than n nodes if no more nodes are eligible.
	Allocate(s *State, have []sharding.NodeID, n int) []sharding.NodeID
	// Evict returns the node in have from which the shard's replica should be
	// removed, which is never a node in keep. have lists the shard's nodes,
	// oldest replica first. Evict returns the empty string if all nodes must be
	// kept.
	Evict(s *State, have, keep []sharding.NodeID) sharding.NodeID
	// Rebalance returns the moves that bring the state closest to balance, most
	// useful first, up to the limit of the strategy. It returns none if the
	// state is balanced. Repeatedly applying all moves and calling Rebalance
	// again must terminate.
	Rebalance(s *State) []Move
}

// load counts replicas and leaderships per node.
type load struct {
	nodes       []Node // sorted by id
	zone        map[sharding.NodeID]string
	sharedZones bool // at least two nodes share a zone
	replicas    map[sharding.NodeID]int
	leaders     map[sharding.NodeID]int
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
		l.sharedZones = l.sharedZones || named[zone]
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

// zoneOf returns the zone of a node. Named zones and the implicit zones of
// single nodes have different prefixes, so that they cannot collide.
func zoneOf(n Node) string {
	if n.Zone == "" {
		return "node/" + string(n.ID)
	}
	return "zone/" + n.Zone
}

// zoneConflicts returns the number of pairs of replicas that share a zone.
func (l *load) zoneConflicts(nodes []sharding.NodeID) (pairs int) {
	if !l.sharedZones {
		return 0 // replicas never share a node
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

// replaceNode returns a copy of nodes with to instead of from. Either node may
// be empty, to only add or only remove a node.
func replaceNode(nodes []sharding.NodeID, from, to sharding.NodeID) []sharding.NodeID {
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
