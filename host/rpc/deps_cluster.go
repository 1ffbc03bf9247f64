package rpc

import (
	"context"
	"errors"

	"github.com/hostd/hostd/sharding"
)

// Cluster describes the cluster as this node sees it. Both calls answer from
// memory: WatchCluster asks several times a second.
type Cluster interface {
	// Overview describes every member, whichever node is asked.
	Overview(ctx context.Context) (Overview, error)
	// Shards describes every shard of the cluster, the metadata group first,
	// whether this node has a replica of it or not.
	Shards(ctx context.Context) ([]Shard, error)
}

// Overview is the cluster's members.
type Overview struct {
	Members     []Member        // ordered by id
	Coordinator sharding.NodeID // empty while none is known
	Quorum      bool            // of the metadata group
	ShardCount  uint32
	ShardKeys   []ShardKey // ordered by type
}

// ShardKey is what decides the shard of a type's entities.
type ShardKey struct {
	EntityType string
	Rule       sharding.KeyRule
}

// Member is one node.
type Member struct {
	ID        sharding.NodeID
	Address   string // host:port of its API
	Status    string
	Reachable bool
	Roles     []string
	Leaders   uint32
	Replicas  uint32
	Version   string
	Zone      string
	Draining  bool
}

// Shard is one shard.
type Shard struct {
	ID       sharding.ShardID
	Leader   sharding.NodeID // empty while none is known
	Term     sharding.Term
	Voters   []sharding.NodeID
	Learners []sharding.NodeID
	Entities uint64
	Applied  uint64 // last log index applied on this node
	Bytes    uint64 // estimated size on disk
}

// Orders changes the cluster, from whichever node is asked. A call returns
// once its order stands and does not wait for the effect: the server does, by
// looking at Cluster.
//
// They fail with ErrUnknownNode, ErrUnknownShard, a *RefusedError where the
// order cannot be carried out as things are, and a *sharding.NotLeaderError
// while there is no coordinator. An order may be given again. A node that is
// not the coordinator's passes an order on at HopPath, unless it has come that
// way itself: see Hopped.
type Orders interface {
	// MoveShard asks the coordinator to have the shard led by the node.
	MoveShard(ctx context.Context, shard sharding.ShardID, to sharding.NodeID) error
	// Drain asks the coordinator that the node lead nothing and get nothing,
	// until it starts again or is resumed.
	Drain(ctx context.Context, node sharding.NodeID) error
	// Resume takes Drain back, and Leave as long as the node is a member.
	Resume(ctx context.Context, node sharding.NodeID) error
	// Leave makes it durable that the node is to leave the cluster: it is no
	// member any more when its replicas are elsewhere.
	Leave(ctx context.Context, node sharding.NodeID) error
	// Down makes it durable that the node is dead.
	Down(ctx context.Context, node sharding.NodeID) error
	// Rebalance evens out leaders and replicas without regard to the threshold
	// and says how many moves that takes.
	Rebalance(ctx context.Context) (moves uint32, err error)
}

// Settings is the replicated map. Reads are of this node's copy.
type Settings interface {
	// Get fails with ErrUnknownSetting where there is none, and with
	// ErrNotReady until the node has caught up with the metadata group.
	Get(ctx context.Context, key string) (Setting, error)
	// List returns the settings whose names begin with prefix, ordered by name,
	// and the number of the last change of any setting. It fails with
	// ErrNotReady as Get does.
	List(prefix string) ([]Setting, uint64, error)
	// Put writes a setting, removes it where value is empty, and returns the
	// number of the change once it is durable.
	Put(ctx context.Context, key, value string) (revision uint64, err error)
	// Changed returns a channel that is closed at the next change of a
	// setting; it may be closed without one.
	Changed() <-chan struct{}
}

// Setting is one entry of the replicated map.
type Setting struct {
	Key      string
	Value    string
	Revision uint64 // of the change that wrote it
}

// Errors of orders and settings.
var (
	// ErrUnknownNode: no member has this name.
	ErrUnknownNode = errors.New("the cluster has no such node; hostd node ls shows them")
	// ErrUnknownShard: the cluster has fewer shards.
	ErrUnknownShard = errors.New("the cluster has no such shard; hostd shard ls shows them")
	// ErrUnknownSetting: nothing is set under this name.
	ErrUnknownSetting = errors.New("there is no such setting; hostd setting ls shows them")
	// errReadOnly: the node's configuration does not let callers change the
	// cluster.
	errReadOnly = errors.New("this node lets nobody change the cluster; set 'admin: full' in its configuration, or ask a node that has it")
)

// RefusedError says why an order cannot be carried out as things are.
type RefusedError struct{ Reason string }

func (e *RefusedError) Error() string { return e.Reason }

// InvalidSettingError says why a setting cannot have a value.
type InvalidSettingError struct{ Reason string }

func (e *InvalidSettingError) Error() string { return e.Reason }

// unfinishedError: the order stands, and its effect was not complete when the
// caller's time was over. It says what is still going on.
type unfinishedError struct{ state string }

func (e *unfinishedError) Error() string { return e.state }
