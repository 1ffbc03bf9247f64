package meta

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// MemberStatus is a member's place in its life:
//
//	Join ─▶ joining ─▶ up ─▶ leaving ─▶ (removed)
//	             │      │▲       │
//	             └──────┴┴──▶ down ─▶ (removed)
//
// A member that is removed is gone from the metadata. Whether a node can be
// reached at the moment is nobody's status.
type MemberStatus string

// The states of a member.
const (
	// StatusJoining: admitted, but not seen to follow the metadata yet. It
	// holds a replica of the metadata shard and nothing else.
	StatusJoining MemberStatus = "joining"
	// StatusUp: it may hold replicas and lead.
	StatusUp MemberStatus = "up"
	// StatusLeaving: its replicas and leaderships are being moved away.
	StatusLeaving MemberStatus = "leaving"
	// StatusDown: it is taken for dead; its replicas are being replaced.
	StatusDown MemberStatus = "down"
)

// successors lists the changes of status that SetStatus may make.
var successors = map[MemberStatus][]MemberStatus{
	StatusJoining: {StatusUp, StatusLeaving, StatusDown},
	StatusUp:      {StatusLeaving, StatusDown},
	StatusLeaving: {StatusUp, StatusDown},
	StatusDown:    {StatusUp},
}

func (s MemberStatus) known() bool {
	_, ok := successors[s]
	return ok
}

// RoleProxy marks a node that routes and never holds replicas of data shards.
const RoleProxy = "proxy"

// Member is a node that was admitted to the cluster. Roles is not modified.
type Member struct {
	Node    sharding.NodeID `json:"node"`
	Address string          `json:"address"` // host:port that clients reach it at
	// PeerAddress is where other nodes reach it. The metadata keeps it from
	// sharding.VersionPeerAddress on; empty, it is Address.
	PeerAddress string       `json:"peerAddress,omitempty"`
	Status      MemberStatus `json:"status"`
	// Disk is drawn when the data directory is made: the same node with
	// another disk has lost all that it ever promised. Empty until known.
	Disk string `json:"disk,omitempty"`
	// Incarnation is that of the node's last start; it only grows on a disk.
	Incarnation uint64   `json:"incarnation,omitempty"`
	Roles       []string `json:"roles,omitempty"`
	Version     string   `json:"version,omitempty"`
	// Zone names what fails together with the node; replicas are spread over
	// zones. Empty: a zone of its own.
	Zone string `json:"zone,omitempty"`
	// Downed says that an operator put the node down: hearing from it does not
	// bring it back, only a new start that joins does.
	Downed bool `json:"downed,omitempty"`
	// Draining is an operator's word that the node is to lead nothing and to be
	// given nothing. It holds until it is taken back, or the node starts anew.
	Draining bool `json:"draining,omitempty"`
	// Leaving is an operator's word that the node is to leave. It holds until it is
	// taken back, also while the node is down, over a new start and on another
	// disk. The metadata keeps it from sharding.VersionLeaving on.
	Leaving bool `json:"leaving,omitempty"`
	// Speaks are the levels that the node's release can write and read. The
	// metadata keeps them from sharding.VersionMemberSpeaks on.
	Speaks sharding.VersionRange `json:"speaks,omitzero"`
}

// PeersAt is where other nodes reach the member.
func (m Member) PeersAt() string { return cmp.Or(m.PeerAddress, m.Address) }

// Contains reports whether the member has the role.
func (m Member) Has(role string) bool { return slices.Contains(m.Roles, role) }

// Equal compares all fields.
func (m Member) Equal(o Member) bool {
	roles := slices.Equal(m.Roles, o.Roles)
	return roles && m.Node == o.Node && m.Address == o.Address && m.PeerAddress == o.PeerAddress && m.Status == o.Status && m.Disk == o.Disk &&
		m.Incarnation == o.Incarnation && m.Version == o.Version && m.Zone == o.Zone && m.Downed == o.Downed && m.Draining == o.Draining && m.Leaving == o.Leaving && m.Speaks == o.Speaks
}

// Joined is what a node that joins needs to begin.
type Joined struct {
	// Member is the node as it was admitted.
	Member Member `json:"member"`
	// Replica is its replica of the metadata shard, to be created with First
	// as the group's first voters. Another replica of that shard on the node's
	// disk was forgotten and must be removed before. A node that creates the
	// replica acts on no view of the metadata before it has caught up again:
	// it passes through views of before the replica was made.
	Replica sharding.ReplicaID   `json:"replica"`
	First   []sharding.ReplicaID `json:"first"`
	// Fresh says that Replica was made by this command.
	Fresh bool `json:"fresh,omitempty"`
}
