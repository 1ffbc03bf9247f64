package cluster

import (
	"maps"

	"github.com/hostd/hostd/host/peer"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/meta"
)

// Standing implements peer.Members. A member that was taken for dead is one: it
// comes back by itself when it is heard.
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

// Leavers finds the nodes that are members no more. It is for one goroutine.
type Leavers struct {
	sever   func(sharding.NodeID)
	members map[sharding.NodeID]bool
}

// NewLeavers makes one that calls sever with each of them.
func NewLeavers(sever func(sharding.NodeID)) *Leavers {
	return &Leavers{sever: sever, members: map[sharding.NodeID]bool{}}
}

// Learn takes a view of the metadata: a member of the view before that was
// removed since, or put down by an operator, has left.
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
