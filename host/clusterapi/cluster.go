package clusterapi

import (
	"context"
	"time"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// View describes the cluster as this node sees it. Both calls answer from
// memory: WatchCluster asks several times a second.
type View interface {
	// Overview describes every member, whichever node is asked.
	Overview(ctx context.Context) (Overview, error)
	// Shards describes every shard of the cluster, the metadata group first,
	// whether this node has a replica of it or not.
	Shards(ctx context.Context) ([]Shard, error)
	// Leaders names who leads each shard, by number from 0, empty where nobody
	// is known to.
	Leaders() []sharding.NodeID
}

// Overview is the cluster's members.
type Overview struct {
	Members     []Member        // ordered by id
	Coordinator sharding.NodeID // empty while none is known
	Quorum      bool            // of the metadata group
	ShardCount  uint32
	ClusterID   string
	Level       sharding.ClusterVersion
	Policy      Policy
	ShardKeys   []ShardKey // ordered by type
	// PendingOrders were accepted and are not carried out yet.
	PendingOrders []*clusterv1.PendingOrder
}

// ShardKey is what decides the shard of a type's entities.
type ShardKey struct {
	EntityType string
	Rule       sharding.KeyRule
}

// Member is one node.
type Member struct {
	ID                sharding.NodeID
	Address           string // host:port of its API
	PeersAt           string // host:port where other nodes reach it
	Status            string
	Reachable         bool
	Roles             []string
	Leaders, Replicas uint32
	Draining          bool
	Version, Zone     string
	Skew              time.Duration         // of its clock
	Trouble           *clusterv1.Trouble    // nil where it is given leaderships
	Speaks            sharding.VersionRange // zero where it is not known
}

// Shard is one shard.
type Shard struct {
	ID       sharding.ShardID
	Leader   sharding.NodeID // empty while none is known
	Term     sharding.Term
	Voters   []sharding.NodeID
	Learners []sharding.NodeID
	Lost     []sharding.NodeID // voters whose disks are lost, none of Voters
	Entities uint64
	Applied  uint64 // last log index applied on this node
	Bytes    uint64 // estimated size on disk
	Stopped  []StoppedReplica
}

// StoppedReplica is a replica that applies no more of its log.
type StoppedReplica struct {
	Node   sharding.NodeID
	Reason sharding.StopReason
}

// Admin changes the cluster, from whichever node is asked. A call returns
// once its operation stands and does not wait for the effect: the server does, by
// looking at Cluster.
//
// They fail with ErrUnknownNode, ErrUnknownShard, a *RefusedError where the
// operation cannot be carried out as things are, and a *sharding.NotLeaderError
// while there is no coordinator. An operation may be asked for again. A node that is
// not the coordinator's passes an operation on at leaderproxy.Path, unless it has
// come that way itself.
type Admin interface {
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
	// request.ErrNotReady until the node has caught up with the metadata group.
	Get(ctx context.Context, key string) (Setting, error)
	// List returns the settings whose names begin with prefix, ordered by name,
	// and the number of the last change of any setting. It fails with
	// request.ErrNotReady as Get does.
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

// Errors of operations and settings.
var (
	// ErrUnknownNode: no member has this name.
	ErrUnknownNode = status.New(connect.CodeNotFound, "the cluster has no such node; hostd node ls shows them")
	// ErrUnknownShard: the cluster has fewer shards.
	ErrUnknownShard = status.New(connect.CodeNotFound, "the cluster has no such shard; hostd shard ls shows them")
	// ErrUnknownSetting: nothing is set under this name.
	ErrUnknownSetting = status.New(connect.CodeNotFound, "there is no such setting; hostd setting ls shows them")
)

// InvalidSettingError says why a setting cannot have a value.
type InvalidSettingError struct{ Reason string }

func (e *InvalidSettingError) Error() string { return e.Reason }

// Code implements status.Coded.
func (e *InvalidSettingError) Code() connect.Code { return connect.CodeInvalidArgument }

// unfinishedError: the operation stands, and its effect was not complete when the
// caller's time was over. It says what is still going on.
type unfinishedError struct{ state string }

func (e *unfinishedError) Error() string { return e.state }

// Code implements status.Coded.
func (e *unfinishedError) Code() connect.Code { return connect.CodeDeadlineExceeded }
