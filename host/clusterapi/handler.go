package clusterapi

import (
	"context"
	"encoding/binary"
	"log/slog"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// clusterService implements the reads of the ClusterService.
type clusterService struct {
	cluster View
	roles   *authorize.Authorizer // if nil, every caller may do everything
	nodeID  string
	log     *slog.Logger
	guard   *admission.Streams
	leaders *leaderVersions
}

// handler is the ClusterService of a node: reads, operations and settings. Calls
// that the node does not support are unimplemented.
type handler struct {
	*clusterService
	adminHandler
	settingHandler
	upgradeHandler
	initHandler
	policyHandler
	rolesHandler
	logHandler
	*shardWatch
	statsHandler
	profileHandler
	guestProfileHandler
}

// adminHandler and the following interfaces are the parts of the service that a
// node may lack.
type adminHandler interface {
	MoveShard(context.Context, *connect.Request[clusterv1.MoveShardRequest]) (*connect.Response[clusterv1.MoveShardResponse], error)
	DrainNode(context.Context, *connect.Request[clusterv1.DrainNodeRequest]) (*connect.Response[clusterv1.DrainNodeResponse], error)
	ResumeNode(context.Context, *connect.Request[clusterv1.ResumeNodeRequest]) (*connect.Response[clusterv1.ResumeNodeResponse], error)
	RemoveNode(context.Context, *connect.Request[clusterv1.RemoveNodeRequest]) (*connect.Response[clusterv1.RemoveNodeResponse], error)
	DownNode(context.Context, *connect.Request[clusterv1.DownNodeRequest]) (*connect.Response[clusterv1.DownNodeResponse], error)
	RebalanceShards(context.Context, *connect.Request[clusterv1.RebalanceShardsRequest]) (*connect.Response[clusterv1.RebalanceShardsResponse], error)
}

type upgradeHandler interface {
	FinalizeUpgrade(context.Context, *connect.Request[clusterv1.FinalizeUpgradeRequest]) (*connect.Response[clusterv1.FinalizeUpgradeResponse], error)
}

type initHandler interface {
	InitializeCluster(context.Context, *connect.Request[clusterv1.InitializeClusterRequest]) (*connect.Response[clusterv1.InitializeClusterResponse], error)
}

type logHandler interface {
	TailLogs(context.Context, *connect.Request[clusterv1.TailLogsRequest], *connect.ServerStream[clusterv1.TailLogsResponse]) error
}

type statsHandler interface {
	WatchStats(context.Context, *connect.Request[clusterv1.WatchStatsRequest], *connect.ServerStream[clusterv1.WatchStatsResponse]) error
}

type profileHandler interface {
	ProfileNode(context.Context, *connect.Request[clusterv1.ProfileNodeRequest], *connect.ServerStream[clusterv1.ProfileNodeResponse]) error
}

type guestProfileHandler interface {
	ProfileGuests(context.Context, *connect.Request[clusterv1.ProfileGuestsRequest], *connect.ServerStream[clusterv1.ProfileGuestsResponse]) error
}

type policyHandler interface {
	SetPolicy(context.Context, *connect.Request[clusterv1.SetPolicyRequest]) (*connect.Response[clusterv1.SetPolicyResponse], error)
}

type settingHandler interface {
	PutSetting(context.Context, *connect.Request[clusterv1.PutSettingRequest]) (*connect.Response[clusterv1.PutSettingResponse], error)
	GetSetting(context.Context, *connect.Request[clusterv1.GetSettingRequest]) (*connect.Response[clusterv1.GetSettingResponse], error)
	ListSettings(context.Context, *connect.Request[clusterv1.ListSettingsRequest]) (*connect.Response[clusterv1.ListSettingsResponse], error)
	WatchSettings(context.Context, *connect.Request[clusterv1.WatchSettingsRequest], *connect.ServerStream[clusterv1.WatchSettingsResponse]) error
}

// Options configure the ClusterService of a node. View, Proxy, Streams and Log
// are required. If a different field is nil, the calls that need it are
// unimplemented.
type Options struct {
	View         View
	Admin        Admin
	Upgrades     UpgradeFinalizer
	Bootstrapper Initializer
	Policies     Policies
	Settings     Settings
	Roles        RoleStore
	Owners       TypeOwners          // required with Settings and Roles
	Lines        *modules.GuestLines // the log lines of the node's guests
	Types        types
	Counters     Counters
	Guests       Sampler

	Self    sharding.NodeID
	Proxy   *leaderproxy.Proxy
	Streams *admission.Streams
	Auth    *authorize.Authorizer // if nil, every caller may do everything
	Callers *authn.Authenticator  // nil if Auth is nil
	Log     *slog.Logger
}

// types knows the entity types that modules serve.
type types interface {
	// CheckType returns an error if no module serves the type.
	CheckType(ctx context.Context, entityType string) error
}

// memberLister lists the nodes of the cluster.
type memberLister interface {
	Members(ctx context.Context) ([]sharding.NodeID, error)
}

// Counters takes samples of a node's counters.
type Counters interface {
	// Sample returns the current values of the node's counters.
	Sample() *Sample
}

// NewHandler makes the ClusterService of a node.
func NewHandler(o Options) clusterv1connect.ClusterServiceHandler {
	reads := &clusterService{cluster: o.View, roles: o.Auth, nodeID: string(o.Self), log: o.Log, guard: o.Streams, leaders: newLeaderVersions()}
	unserved := clusterv1connect.UnimplementedClusterServiceHandler{}
	h := handler{clusterService: reads, adminHandler: unserved, settingHandler: unserved, upgradeHandler: unserved, policyHandler: unserved,
		initHandler: unserved, guestProfileHandler: unserved, statsHandler: unserved, rolesHandler: unserved, logHandler: unserved}
	h.shardWatch = &shardWatch{NodeID: reads.nodeID, Shards: reads.shards, Leaders: o.View.Leaders, Streams: o.Streams, Log: o.Log}
	nodes := Nodes{o.View}
	all := allNodes{Self: string(o.Self), Nodes: nodes, Proxy: o.Proxy, Streams: o.Streams, Log: o.Log}
	if o.Lines != nil {
		h.logHandler = &logTail{allNodes: all, Lines: o.Lines, Types: o.Types}
	}
	if o.Counters != nil {
		h.statsHandler = &statsWatch{allNodes: all, Counters: o.Counters}
	}
	h.profileHandler = &nodeProfiler{Self: string(o.Self), Nodes: nodes, Unknown: ErrUnknownNode, Proxy: o.Proxy, Streams: o.Streams, Log: o.Log}
	if o.Guests != nil {
		h.guestProfileHandler = &guestProfiler{Self: string(o.Self), Sampler: o.Guests, Types: o.Types, Nodes: nodes, Proxy: o.Proxy, Streams: o.Streams, Log: o.Log}
	}
	if o.Admin != nil {
		h.adminHandler = &adminService{admin: o.Admin, cluster: o.View, log: o.Log}
	}
	if o.Upgrades != nil {
		h.upgradeHandler = &upgradeService{finalizer: o.Upgrades, log: o.Log}
	}
	if o.Bootstrapper != nil {
		h.initHandler = &initService{bootstrapper: o.Bootstrapper, log: o.Log}
	}
	if o.Policies != nil {
		h.policyHandler = &policyService{policies: o.Policies, log: o.Log}
	}
	if o.Roles != nil {
		h.rolesHandler = &roleService{Store: o.Roles, Owners: o.Owners, Auth: o.Auth, Callers: o.Callers, Logger: o.Log}
	}
	if o.Settings != nil {
		h.settingHandler = &settingService{settings: o.Settings, owners: o.Owners, log: o.Log, guard: o.Streams}
	}
	return h
}

// Nodes lists the nodes of the cluster.
type Nodes struct{ View View }

// Members returns the ids of the members.
func (n Nodes) Members(ctx context.Context) (out []sharding.NodeID, err error) {
	o, err := n.View.Overview(ctx)
	for _, m := range o.Members {
		out = append(out, m.ID)
	}
	return out, err
}

// GetCluster describes the cluster and its members.
func (s *clusterService) GetCluster(ctx context.Context, _ *connect.Request[clusterv1.GetClusterRequest]) (*connect.Response[clusterv1.GetClusterResponse], error) {
	o, err := s.cluster.Overview(ctx)
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&clusterv1.GetClusterResponse{
		Members:           members(o),
		Coordinator:       string(o.Coordinator),
		Quorum:            o.Quorum,
		NodeId:            s.nodeID,
		ShardCount:        o.ShardCount,
		ShardKeys:         s.shardKeys(ctx, o),
		ClusterVersion:    uint32(o.ClusterVersion),
		ClusterId:         o.ClusterID,
		Policy:            policyMessage(o.Policy),
		PendingOperations: o.PendingOperations,
	}), nil
}

// shardKeys returns the shard keys of the types that the caller can reach.
// The caller does not need the keys of other types, and must not learn that
// these types exist.
func (s *clusterService) shardKeys(ctx context.Context, o Overview) []*clusterv1.ShardKey {
	out := make([]*clusterv1.ShardKey, 0, len(o.ShardKeys))
	for _, k := range o.ShardKeys {
		if s.roles.Reaches(ctx, k.EntityType) {
			out = append(out, &clusterv1.ShardKey{EntityType: k.EntityType, Group: k.Rule.Group, Until: k.Rule.Until})
		}
	}
	return out
}

func members(o Overview) []*clusterv1.Member {
	out := make([]*clusterv1.Member, len(o.Members))
	for i, m := range o.Members {
		out[i] = &clusterv1.Member{
			NodeId: string(m.ID), Address: m.Address, PeerAddress: m.PeersAt, Status: m.Status, Reachable: m.Reachable, Roles: m.Roles,
			LeaderCount: m.Leaders, ReplicaCount: m.Replicas, Version: m.Version, Zone: m.Zone, Draining: m.Draining, ClockSkew: unlessZero(m.Skew.Truncate(time.Millisecond)),
			MinClusterVersion: uint32(m.Speaks.Min), MaxClusterVersion: uint32(m.Speaks.Max), Impairment: m.Impairment,
		}
	}
	return out
}

// unlessZero returns the message of a duration, and nil for 0.
func unlessZero(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

// ListShards describes the shards, in pages.
func (s *clusterService) ListShards(ctx context.Context, r *connect.Request[clusterv1.ListShardsRequest]) (*connect.Response[clusterv1.ListShardsResponse], error) {
	if r.Msg.GetLeadersOnly() {
		out := &clusterv1.ListShardsResponse{}
		var shards []Shard
		shards, out.Version, out.Changes = s.leaders.since(r.Msg.GetSinceVersion(), time.Now(), s.cluster.Leaders)
		for _, sh := range shards {
			out.Shards = append(out.Shards, &clusterv1.Shard{ShardId: uint32(sh.ID), Leader: string(sh.Leader)})
		}
		return connect.NewResponse(out), nil
	}
	shards, err := s.shards(ctx)
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	out := &clusterv1.ListShardsResponse{}
	out.Shards, out.NextPageToken, err = page.Of(r.Msg, page.Filter("shards"), shards,
		func(sh **clusterv1.Shard) string {
			return string(binary.BigEndian.AppendUint32(nil, (*sh).GetShardId()))
		},
		func(sh **clusterv1.Shard) *clusterv1.Shard { return *sh })
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(out), nil
}

// shards returns all shards as this node sees them.
func (s *clusterService) shards(ctx context.Context) (out []*clusterv1.Shard, err error) {
	shards, err := s.cluster.Shards(ctx)
	for _, sh := range shards {
		shard := &clusterv1.Shard{
			ShardId: uint32(sh.ID), Leader: string(sh.Leader), Term: uint64(sh.Term),
			Voters: nodeNames(sh.Voters), Learners: nodeNames(sh.Learners), LostVoters: nodeNames(sh.Lost),
			EntityCount: sh.Entities, AppliedIndex: sh.Applied, Bytes: sh.Bytes,
		}
		for _, r := range sh.Stopped {
			shard.Stopped = append(shard.Stopped, &clusterv1.StoppedReplica{NodeId: string(r.Node), Reason: r.Reason.String()})
		}
		out = append(out, shard)
	}
	return out, err
}

func nodeNames(ids []sharding.NodeID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}
