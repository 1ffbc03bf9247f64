package nodes

import (
	"slices"

	"github.com/hostd/hostd/sharding"
)

// maxRoutes bounds the replicas of a group whose nodes are remembered.
const maxRoutes = 64

// Routes say on which nodes the replicas of a group live.
type Routes struct {
	table *Table
	shard sharding.ShardID
	list  []route
}

// route says on which node a replica lives. A replica never moves: what the
// table's locate said once is sure, what its messages showed is used until then.
type route struct {
	replica uint64
	node    *Node
	sure    bool
}

// Routes are those of a group; none is known yet.
func (t *Table) Routes(shard sharding.ShardID) *Routes { return &Routes{table: t, shard: shard} }

func (r *Routes) of(replica uint64) *route {
	for i := range r.list {
		if r.list[i].replica == replica {
			return &r.list[i]
		}
	}
	return nil
}

// Learn remembers where a message of a replica came from, and says whether that
// is new.
func (r *Routes) Learn(replica uint64, from sharding.NodeID) bool {
	at := r.of(replica)
	switch {
	case from == "" || at != nil && (at.sure || at.node.ID == from):
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

// Locate returns the node of a replica, nil if nobody knows it.
func (r *Routes) Locate(replica uint64) *Node {
	at := r.of(replica)
	if at != nil && at.sure {
		return at.node
	}
	if locate := r.table.locate; locate != nil {
		if id, ok := locate(r.shard, sharding.ReplicaID(replica)); ok {
			n := r.table.node(id)
			if at == nil {
				if len(r.list) >= maxRoutes {
					return n
				}
				r.list = append(r.list, route{replica: replica})
				at = &r.list[len(r.list)-1]
			}
			at.node, at.sure = n, true
		}
	}
	if at == nil {
		return nil
	}
	return at.node
}

// Heard says whether the node of a replica is known and heard.
func (r *Routes) Heard(replica uint64) bool {
	n := r.Locate(replica)
	return n != nil && !n.silent
}

// Keep forgets all replicas but those that are members.
func (r *Routes) Keep(member func(replica uint64) bool) {
	r.list = slices.DeleteFunc(r.list, func(at route) bool { return !member(at.replica) })
}

// Through says whether a replica is known to live on the node.
func (r *Routes) Through(n *Node) bool {
	return slices.ContainsFunc(r.list, func(at route) bool { return at.node == n })
}
