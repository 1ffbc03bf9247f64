package rpc

import (
	"context"
	"log/slog"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/sharding"
)

// clusterService answers the ClusterService. Methods it does not have are
// unimplemented.
type clusterService struct {
	clusterv1connect.UnimplementedClusterServiceHandler
	cluster Cluster
	nodeID  string
	log     *slog.Logger
}

// GetCluster describes the members.
func (s *clusterService) GetCluster(ctx context.Context, _ *connect.Request[clusterv1.GetClusterRequest]) (*connect.Response[clusterv1.GetClusterResponse], error) {
	o, err := s.cluster.Overview(ctx)
	if err != nil {
		return nil, publicError(s.log, err)
	}
	out := &clusterv1.GetClusterResponse{
		Coordinator: string(o.Coordinator),
		Quorum:      o.Quorum,
		NodeId:      s.nodeID,
		ShardCount:  o.ShardCount,
	}
	for _, m := range o.Members {
		out.Members = append(out.Members, &clusterv1.Member{
			NodeId: string(m.ID), Address: m.Address, Status: m.Status, Reachable: m.Reachable, Roles: m.Roles,
			LeaderCount: m.Leaders, ReplicaCount: m.Replicas, Version: m.Version,
		})
	}
	return connect.NewResponse(out), nil
}

// ListShards describes the shards.
func (s *clusterService) ListShards(ctx context.Context, _ *connect.Request[clusterv1.ListShardsRequest]) (*connect.Response[clusterv1.ListShardsResponse], error) {
	shards, err := s.cluster.Shards(ctx)
	if err != nil {
		return nil, publicError(s.log, err)
	}
	out := &clusterv1.ListShardsResponse{}
	for _, sh := range shards {
		out.Shards = append(out.Shards, &clusterv1.Shard{
			ShardId: uint32(sh.ID), Leader: string(sh.Leader), Term: uint64(sh.Term),
			Voters: nodeNames(sh.Voters), Learners: nodeNames(sh.Learners),
			EntityCount: sh.Entities, AppliedIndex: sh.Applied, Bytes: sh.Bytes,
		})
	}
	return connect.NewResponse(out), nil
}

func nodeNames(ids []sharding.NodeID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = string(id)
	}
	return out
}
