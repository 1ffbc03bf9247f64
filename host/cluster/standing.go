package cluster

import (
	"maps"

	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Standing implements peer.Members. A node that was declared dead is still a
// member, because it comes back without a join when other nodes hear from it
// again.
func (m *Metadata) Standing(node sharding.NodeID, start uint64) peer.Standing {
	return standing(m.View(), node, start)
}

func standing(view *meta.View, node sharding.NodeID, start uint64) peer.Standing {
	if view.IsDowned(node, start) {
		return peer.StandingPutDown
	}
	known, member := view.Member(node)
	switch {
	case !member:
		return peer.StandingUnknown
	case known.Downed:
		return peer.StandingOutside
	}
	return peer.StandingMember
}

var _ peer.Members = (*Metadata)(nil)

// Leavers finds nodes that are no longer members. It is not safe for concurrent
// use.
type Leavers struct {
	sever   func(sharding.NodeID)
	members map[sharding.NodeID]bool
}

// NewLeavers returns a Leavers that calls sever for each node that left.
func NewLeavers(sever func(sharding.NodeID)) *Leavers {
	return &Leavers{sever: sever, members: map[sharding.NodeID]bool{}}
}

// Learn compares a view with the previous one. A node has left if it was a
// member in the previous view and was removed or put down by an operator
// since then.
func (l *Leavers) Learn(view *meta.View) {
	now := make(map[sharding.NodeID]bool, len(l.members))
	for _, m := range view.Members() {
		if !m.Downed {
			now[m.Node] = true
		}
	}
	if maps.Equal(now, l.members) {
		return
	}
	before := l.members
	l.members = now
	for node := range before {
		if !now[node] {
			l.sever(node)
		}
	}
}
