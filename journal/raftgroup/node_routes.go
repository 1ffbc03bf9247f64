package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/sharding"
)

// maxRoutes bounds the known replicas of a group.
const maxRoutes = 64

// routes map the replicas of a group to their nodes.
type routes struct {
	table *nodeTable
	shard sharding.ShardID
	list  []route
}

// route is the node of a replica. Replicas never move, so a node returned by
// the table's placement is final. Until the placement knows the replica, the
// origin of the replica's messages is used.
type route struct {
	replica uint64
	node    *peerNode
	final   bool
}

// Routes returns the routes of a group, initially empty.
func (t *nodeTable) Routes(shard sharding.ShardID) *routes { return &routes{table: t, shard: shard} }

func (r *routes) of(replica uint64) *route {
	for i := range r.list {
		if r.list[i].replica == replica {
			return &r.list[i]
		}
	}
	return nil
}

// Learn records the node that a message of a replica came from, and reports
// whether the node was not known yet.
func (r *routes) Learn(replica uint64, from sharding.NodeID) bool {
	at := r.of(replica)
	switch {
	case from == "" || at != nil && (at.final || at.node.ID == from):
		return false
	case at != nil:
		at.node = r.table.node(from)
	case len(r.list) >= maxRoutes:
		return false
	default:
		r.list = append(r.list, route{replica: replica, node: r.table.node(from)})
	}
	return true
}

// Locate returns the node of a replica, or nil if it is unknown.
func (r *routes) Locate(replica uint64) *peerNode {
	at := r.of(replica)
	if at != nil && at.final {
		return at.node
	}
	if p := r.table.placement; p != nil {
		if id, ok := p.Locate(r.shard, sharding.ReplicaID(replica)); ok {
			n := r.table.node(id)
			if at == nil {
				if len(r.list) >= maxRoutes {
					return n
				}
				r.list = append(r.list, route{replica: replica})
				at = &r.list[len(r.list)-1]
			}
			at.node, at.final = n, true
		}
	}
	if at == nil {
		return nil
	}
	return at.node
}

// IsAlive reports whether the node of a replica is known and alive.
func (r *routes) IsAlive(replica uint64) bool {
	n := r.Locate(replica)
	return n != nil && !n.suspected
}

// Retain forgets all replicas that are not members.
func (r *routes) Retain(member func(replica uint64) bool) {
	r.list = slices.DeleteFunc(r.list, func(at route) bool { return !member(at.replica) })
}

// HasNode reports whether a replica is known to live on the node.
func (r *routes) HasNode(n *peerNode) bool {
	return slices.ContainsFunc(r.list, func(at route) bool { return at.node == n })
}
