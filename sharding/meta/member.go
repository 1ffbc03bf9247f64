package meta

import (
	"cmp"
	"slices"

	"github.com/hostd/hostd/sharding"
)

// MemberStatus is the lifecycle state of a member:
//
//	Join ─▶ joining ─▶ up ─▶ leaving ─▶ (removed)
//	             │      │▲       │
//	             └──────┴┴──▶ down ─▶ (removed)
//
// A removed member is deleted from the metadata. Whether a node is currently
// reachable is not part of its status.
type MemberStatus string

// Member statuses.
const (
	// StatusJoining: admitted, but not yet known to follow the metadata. The
	// node holds only a replica of the metadata shard.
	StatusJoining MemberStatus = "joining"
	// StatusUp: the node may hold replicas and lead shards.
	StatusUp MemberStatus = "up"
	// StatusLeaving: the node's replicas and leaderships are being moved to
	// other nodes.
	StatusLeaving MemberStatus = "leaving"
	// StatusDown: the node is considered dead, and its replicas are being
	// replaced.
	StatusDown MemberStatus = "down"
)

// successors lists the status changes that SetStatus may make.
var successors = map[MemberStatus][]MemberStatus{
	StatusJoining: {StatusUp, StatusLeaving, StatusDown},
	StatusUp:      {StatusLeaving, StatusDown},
	StatusLeaving: {StatusUp, StatusDown},
	StatusDown:    {StatusUp},
}

func (s MemberStatus) isKnown() bool {
	_, ok := successors[s]
	return ok
}

// RoleProxy marks a node that routes requests and never holds replicas of data
// shards.
const RoleProxy = "proxy"

// Member is a node that was admitted to the cluster. Roles must not be
// modified.
type Member struct {
	Node    sharding.NodeID `json:"node"`
	Address string          `json:"address"` // host:port for clients
	// PeerAddress is the address for other nodes. It is stored from
	// sharding.VersionPeerAddress on; if empty, Address is used.
	PeerAddress string       `json:"peerAddress,omitempty"`
	Status      MemberStatus `json:"status"`
	// Disk is a random id generated with the data directory. If the same node
	// has a different Disk, it has lost everything it had acknowledged. Disk is
	// empty until it is known.
	Disk string `json:"disk,omitempty"`
	// Incarnation identifies the node's last process. It only increases for a
	// disk.
	Incarnation uint64   `json:"incarnation,omitempty"`
	Roles       []string `json:"roles,omitempty"`
	Version     string   `json:"version,omitempty"`
	// Zone is the node's failure domain; replicas are spread over zones. A node
	// without a zone is a zone of its own.
	Zone string `json:"zone,omitempty"`
	// Downed says that an operator declared the node dead. Contact with the
	// node does not bring it back; only a new incarnation that joins does.
	Downed bool `json:"downed,omitempty"`
	// Draining says that an operator is draining the node: it leads nothing and
	// is given nothing, until the drain is canceled or the node restarts.
	Draining bool `json:"draining,omitempty"`
	// Leaving means that an operator asked the node to leave. It stays set until
	// the request is canceled, even while the node is down, across restarts, and
	// if the disk changes. Stored from sharding.VersionLeaving on.
	Leaving bool `json:"leaving,omitempty"`
	// Speaks is the range of cluster versions that the node supports. Stored
	// from sharding.VersionMemberSpeaks on.
	Speaks sharding.VersionRange `json:"speaks,omitzero"`
}

// PeerEndpoint returns the address at which other nodes reach the member.
func (m Member) PeerEndpoint() string { return cmp.Or(m.PeerAddress, m.Address) }

// HasRole reports whether the member has the role.
func (m Member) HasRole(role string) bool { return slices.Contains(m.Roles, role) }

// Equal compares all fields.
func (m Member) Equal(o Member) bool {
	roles := slices.Equal(m.Roles, o.Roles)
	return roles && m.Node == o.Node && m.Address == o.Address && m.PeerAddress == o.PeerAddress && m.Status == o.Status && m.Disk == o.Disk &&
		m.Incarnation == o.Incarnation && m.Version == o.Version && m.Zone == o.Zone && m.Downed == o.Downed && m.Draining == o.Draining && m.Leaving == o.Leaving && m.Speaks == o.Speaks
}

// JoinResult has the data that a joining node needs to start.
type JoinResult struct {
	// Member is the node as it was admitted.
	Member Member `json:"member"`
	// Replica is the node's replica of the metadata shard, to be created with
	// First as the first voters of the group. Any other replica of that shard
	// on the disk was forgotten and must be deleted first. Until the new
	// replica has caught up, the node must not act on its view of the metadata,
	// because catching up passes through views from before the replica existed.
	Replica sharding.ReplicaID   `json:"replica"`
	First   []sharding.ReplicaID `json:"first"`
	// Fresh means that this command created Replica.
	Fresh bool `json:"fresh,omitempty"`
}
