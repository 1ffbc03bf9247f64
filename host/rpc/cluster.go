package rpc

import (
	"context"
	"encoding/binary"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/rpc/admission"
	"github.com/hostd/hostd/host/rpc/allnodes"
	"github.com/hostd/hostd/host/rpc/authorize"
	"github.com/hostd/hostd/host/rpc/leaderproxy"
	"github.com/hostd/hostd/host/rpc/page"
	"github.com/hostd/hostd/host/rpc/profiling"
	"github.com/hostd/hostd/host/rpc/roles"
	"github.com/hostd/hostd/host/rpc/taillogs"
	"github.com/hostd/hostd/host/rpc/watchshards"
	"github.com/hostd/hostd/host/rpc/watchstats"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// clusterService answers the reads of the ClusterService.
type clusterService struct {
	cluster Cluster
	roles   *authorize.Authorizer // nil: everybody may do everything
	nodeID  string
	log     *slog.Logger
	guard   *admission.Streams
	leaders *leaderVersions
}

// clusterHandler is the ClusterService of a node: reads, operations and settings.
// What the node cannot do yet is unimplemented.
type clusterHandler struct {
	*clusterService
	adminHandler
	settingHandler
	levelHandler
	initHandler
	policyHandler
	roles.Handler
	logHandler
	*watchshards.Service
	statsHandler
	profileHandler
	guestProfileHandler
}

// adminHandler and settingHandler are parts of the service that a node may
// lack.
type adminHandler interface {
	MoveShard(context.Context, *connect.Request[clusterv1.MoveShardRequest]) (*connect.Response[clusterv1.MoveShardResponse], error)
	Drain(context.Context, *connect.Request[clusterv1.DrainRequest]) (*connect.Response[clusterv1.DrainResponse], error)
	Resume(context.Context, *connect.Request[clusterv1.ResumeRequest]) (*connect.Response[clusterv1.ResumeResponse], error)
	Leave(context.Context, *connect.Request[clusterv1.LeaveRequest]) (*connect.Response[clusterv1.LeaveResponse], error)
	Down(context.Context, *connect.Request[clusterv1.DownRequest]) (*connect.Response[clusterv1.DownResponse], error)
	Rebalance(context.Context, *connect.Request[clusterv1.RebalanceRequest]) (*connect.Response[clusterv1.RebalanceResponse], error)
}

type levelHandler interface {
	RaiseLevel(context.Context, *connect.Request[clusterv1.RaiseLevelRequest]) (*connect.Response[clusterv1.RaiseLevelResponse], error)
}

type initHandler interface {
	Initialize(context.Context, *connect.Request[clusterv1.InitializeRequest]) (*connect.Response[clusterv1.InitializeResponse], error)
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

func newClusterHandler(deps Deps, opts Options, guard *admission.Streams, proxy *leaderproxy.Proxy) clusterv1connect.ClusterServiceHandler {
	reads := &clusterService{cluster: deps.Cluster, roles: opts.Roles, nodeID: string(opts.NodeID), log: opts.Logger, guard: guard, leaders: newLeaderVersions()}
	h := clusterHandler{clusterService: reads,
		adminHandler: clusterv1connect.UnimplementedClusterServiceHandler{}, settingHandler: clusterv1connect.UnimplementedClusterServiceHandler{},
		levelHandler: clusterv1connect.UnimplementedClusterServiceHandler{}, policyHandler: clusterv1connect.UnimplementedClusterServiceHandler{}, initHandler: clusterv1connect.UnimplementedClusterServiceHandler{},
		guestProfileHandler: clusterv1connect.UnimplementedClusterServiceHandler{}, statsHandler: clusterv1connect.UnimplementedClusterServiceHandler{},
		Handler: clusterv1connect.UnimplementedClusterServiceHandler{}, logHandler: clusterv1connect.UnimplementedClusterServiceHandler{}}
	h.Service = &watchshards.Service{NodeID: reads.nodeID, Shards: reads.shards, Leaders: reads.cluster.Leaders, Streams: guard, Log: opts.Logger}
	all := allnodes.Service{Self: string(opts.NodeID), Members: reads.members, Proxy: proxy, Streams: guard, Log: opts.Logger}
	if deps.Lines != nil {
		h.logHandler = &taillogs.Service{Service: all, Lines: deps.Lines, Known: deps.known}
	}
	if deps.Load != nil {
		h.statsHandler = &watchstats.Service{Service: all, Take: deps.Load.Counted}
	}
	h.profileHandler = &profiling.Service{Self: string(opts.NodeID), Members: reads.members, Unknown: ErrUnknownNode, Proxy: proxy, Streams: guard, Log: opts.Logger}
	if deps.ProfileGuests != nil {
		h.guestProfileHandler = &profiling.Guests{Self: string(opts.NodeID), Take: deps.ProfileGuests, Known: deps.known, Members: reads.members, Proxy: proxy, Streams: guard, Log: opts.Logger}
	}
	if deps.ClusterAdmin != nil {
		h.adminHandler = &adminService{admin: deps.ClusterAdmin, cluster: deps.Cluster, log: opts.Logger}
	}
	if deps.Levels != nil {
		h.levelHandler = &levelService{levels: deps.Levels, log: opts.Logger}
	}
	if deps.Founder != nil {
		h.initHandler = &initService{founder: deps.Founder, log: opts.Logger}
	}
	if deps.Policies != nil {
		h.policyHandler = &policyService{policies: deps.Policies, log: opts.Logger}
	}
	if deps.Roles != nil {
		h.Handler = &roles.Service{Store: deps.Roles, Owner: owners{deps.Modules, opts.Roles}.find, Auth: opts.Roles, Callers: opts.Auth, Logger: opts.Logger}
	}
	if deps.Settings != nil {
		h.settingHandler = &settingService{settings: deps.Settings, owners: owners{deps.Modules, opts.Roles}, log: opts.Logger, guard: guard}
	}
	return h
}

// members names the nodes of the cluster.
func (s *clusterService) members(ctx context.Context) (out []sharding.NodeID, err error) {
	o, err := s.cluster.Overview(ctx)
	for _, m := range o.Members {
		out = append(out, m.ID)
	}
	return out, err
}

// GetCluster describes the members.
func (s *clusterService) GetCluster(ctx context.Context, _ *connect.Request[clusterv1.GetClusterRequest]) (*connect.Response[clusterv1.GetClusterResponse], error) {
	o, err := s.cluster.Overview(ctx)
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&clusterv1.GetClusterResponse{
		Members:       members(o),
		Coordinator:   string(o.Coordinator),
		Quorum:        o.Quorum,
		NodeId:        s.nodeID,
		ShardCount:    o.ShardCount,
		ShardKeys:     s.shardKeys(ctx, o),
		Level:         uint32(o.Level),
		ClusterId:     o.ClusterID,
		Policy:        policyMessage(o.Policy),
		PendingOrders: o.PendingOrders,
	}), nil
}

// shardKeys are those of the types with which the caller may do anything: the
// others it does not need, and it is not to learn of them.
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
			LeaderCount: m.Leaders, ReplicaCount: m.Replicas, Version: m.Version, Zone: m.Zone, Draining: m.Draining, ClockSkewMillis: m.Skew.Milliseconds(),
			MinLevel: uint32(m.Speaks.Min), MaxLevel: uint32(m.Speaks.Max), Trouble: m.Trouble,
		}
	}
	return out
}

// ListShards describes the shards, page by page.
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

// shards are all, as this node sees them.
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
