package raftgroup

import (
	"slices"

	"github.com/hostd/hostd/sharding"
)

// maxRoutes bounds the replicas of a group whose nodes are remembered.
const maxRoutes = 64

// route says on which node a replica lives. A replica never moves: what
// Options.Locate said once is sure, what its messages showed is used until
// then.
type route struct {
	replica uint64
	peer    *peer
	sure    bool
}

func (g *group) route(replica uint64) *route {
	for i := range g.routes {
		if g.routes[i].replica == replica {
			return &g.routes[i]
		}
	}
	return nil
}

// learn remembers where a message of a replica came from.
func (c *Core) learn(g *group, replica uint64, from sharding.NodeID) {
	r := g.route(replica)
	switch {
	case from == "" || r != nil && (r.sure || r.peer.node == from):
		return
	case r != nil:
		r.peer = c.peer(from)
	case len(g.routes) >= maxRoutes:
		return
	default:
		g.routes = append(g.routes, route{replica: replica, peer: c.peer(from)})
	}
	c.reckon(g)
}

// locate returns the node of a replica, nil if nobody knows it.
func (c *Core) locate(g *group, replica uint64) *peer {
	r := g.route(replica)
	if r != nil && r.sure {
		return r.peer
	}
	if c.opts.Locate != nil {
		if node, ok := c.opts.Locate(g.shard, sharding.ReplicaID(replica)); ok {
			p := c.peer(node)
			if r == nil {
				if len(g.routes) >= maxRoutes {
					return p
				}
				g.routes = append(g.routes, route{replica: replica})
				r = &g.routes[len(g.routes)-1]
			}
			r.peer, r.sure = p, true
		}
	}
	if r == nil {
		return nil
	}
	return r.peer
}

// heard says whether the node of another replica is known and heard.
func (c *Core) heard(g *group, replica uint64) bool {
	p := c.locate(g, replica)
	return p != nil && !p.silent
}

// forgetRoutes drops what is known of replicas that are no members any more.
func (g *group) forgetRoutes() {
	g.routes = slices.DeleteFunc(g.routes, func(r route) bool { return !g.member(r.replica) })
}

// lists are the members by role, with the outgoing ones of a joint membership.
// A replica may be in two of them.
func (g *group) lists() [4][]uint64 {
	s := g.conf.state
	return [4][]uint64{s.GetVoters(), s.GetVotersOutgoing(), s.GetLearners(), s.GetLearnersNext()}
}

// member says whether a replica is in the membership as applied here.
func (g *group) member(replica uint64) bool {
	for _, list := range g.lists() {
		if slices.Contains(list, replica) {
			return true
		}
	}
	return false
}

// lives says whether another member lives on the node.
func (c *Core) lives(g *group, p *peer) bool {
	for _, list := range g.lists() {
		for _, id := range list {
			if id != g.replica && c.locate(g, id) == p {
				return true
			}
		}
	}
	return false
}
