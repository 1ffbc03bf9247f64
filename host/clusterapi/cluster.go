package clusterapi

import (
	"context"
	"time"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// View describes the cluster as this node sees it. Overview and Leaders answer
// from memory, because streams call them several times per second.
type View interface {
	// Overview describes every member. Its answer is the same on each node.
	Overview(ctx context.Context) (Overview, error)
	// Shards describes every shard of the cluster, the metadata shard first,
	// whether or not this node has a replica of it.
	Shards(ctx context.Context) ([]Shard, error)
	// Leaders returns the leader of each shard, by shard number from 0; empty if
	// none is known.
	Leaders() []sharding.NodeID
}

// Overview describes the cluster and its members.
type Overview struct {
	Members        []Member        // members, ordered by id
	Coordinator    sharding.NodeID // empty if no coordinator is known
	Quorum         bool            // the metadata shard has a quorum
	ShardCount     uint32
	ClusterID      string
	ClusterVersion sharding.ClusterVersion
	Policy         Policy
	ShardKeys      []ShardKey // shard keys, ordered by type
	// PendingOperations are operations that were accepted but are not carried out
	// yet.
	PendingOperations []*clusterv1.PendingOperation
}

// ShardKey is the rule that maps the entities of a type to shards.
type ShardKey struct {
	EntityType string
	Rule       sharding.KeyRule
}

// Member is one node.
type Member struct {
	ID                sharding.NodeID
	Address           string // host:port of its API
	PeersAt           string // host:port for calls of other nodes
	Status            string
	Reachable         bool
	Roles             []string
	Leaders, Replicas uint32
	Draining          bool
	Version, Zone     string
	Skew              time.Duration         // clock skew
	Impairment        *clusterv1.Impairment // nil if the node may be given leaderships
	Speaks            sharding.VersionRange // supported cluster versions; zero if not known
}

// Shard is one shard.
type Shard struct {
	ID       sharding.ShardID
	Leader   sharding.NodeID // empty if no leader is known
	Term     sharding.Term
	Voters   []sharding.NodeID
	Learners []sharding.NodeID
	Lost     []sharding.NodeID // voters whose disks are lost; not in Voters
	Entities uint64
	Applied  uint64 // last log index applied on this node
	Bytes    uint64 // estimated size on disk
	Stopped  []StoppedReplica
}

// StoppedReplica is a replica that no longer applies its log.
type StoppedReplica struct {
	Node   sharding.NodeID
	Reason sharding.StopReason
}

// Admin changes the cluster; every node accepts its calls. A call returns when
// the operation is accepted and does not wait for its effect: the server
// waits, by polling View.
//
// The calls fail with ErrUnknownNode, ErrUnknownShard, a *status.RefusedError
// if the current state does not allow the operation, and a
// *sharding.NotLeaderError while there is no coordinator. An operation may be
// requested again. A node that does not run the coordinator forwards an
// operation to leaderproxy.Path on the coordinator's node, unless another node
// has forwarded the operation.
type Admin interface {
	// MoveShard asks the coordinator to move the shard's leadership to the node.
	MoveShard(ctx context.Context, shard sharding.ShardID, to sharding.NodeID) error
	// Drain asks the coordinator to move all leaderships away from the node and
	// to assign nothing to it, until it restarts or is resumed. It does nothing
	// if the node was a member and has left.
	Drain(ctx context.Context, node sharding.NodeID) error
	// Resume cancels Drain, and Leave if the node is still a member.
	Resume(ctx context.Context, node sharding.NodeID) error
	// Leave durably records that the node should leave the cluster. The node is
	// no longer a member once its replicas were moved to other nodes.
	Leave(ctx context.Context, node sharding.NodeID) error
	// Down durably records that the node is dead.
	Down(ctx context.Context, node sharding.NodeID) error
	// Rebalance balances leaders and replicas even if the imbalance is below
	// the threshold, and returns the number of moves.
	Rebalance(ctx context.Context) (moves uint32, err error)
}

// Settings is the replicated map of settings. Reads use this node's copy.
type Settings interface {
	// Get fails with ErrUnknownSetting if the setting does not exist, and with
	// request.ErrNotReady until the node has caught up with the metadata shard.
	Get(ctx context.Context, key string) (Setting, error)
	// List returns the settings whose keys begin with prefix, ordered by key,
	// and the revision of the last change of any setting. It fails with
	// request.ErrNotReady like Get.
	List(prefix string) ([]Setting, uint64, error)
	// Put writes a setting, or deletes it if value is empty. It returns the
	// revision of the change when it is durable.
	Put(ctx context.Context, key, value string) (revision uint64, err error)
	// Changed returns a channel that is closed at the next change of a setting.
	// It may be closed without a change.
	Changed() <-chan struct{}
}

// Setting is one entry of the replicated map.
type Setting struct {
	Key      string
	Value    string
	Revision uint64 // revision of the change that wrote the setting
}

// Errors of operations and settings.
var (
	// ErrUnknownNode: no member has this id.
	ErrUnknownNode = status.New(connect.CodeNotFound, "the cluster has no such node; 'hostd node ls' lists the nodes")
	// ErrUnknownShard: the cluster has fewer shards.
	ErrUnknownShard = status.New(connect.CodeNotFound, "the cluster has no such shard; 'hostd shard ls' lists the shards")
	// ErrUnknownSetting: no setting has this key.
	ErrUnknownSetting = status.New(connect.CodeNotFound, "the setting is not set; 'hostd setting ls' lists the settings")
)

// invalidSettingError says why a value is invalid for a setting.
type invalidSettingError struct{ Reason string }

func (e *invalidSettingError) Error() string { return e.Reason }

// Code implements status.Coded.
func (e *invalidSettingError) Code() connect.Code { return connect.CodeInvalidArgument }

// unfinishedError: the operation was accepted, but had not taken full effect
// when the time of the call was over. It describes the remaining work.
type unfinishedError struct{ state string }

func (e *unfinishedError) Error() string { return e.state }

// Code implements status.Coded.
func (e *unfinishedError) Code() connect.Code { return connect.CodeDeadlineExceeded }
