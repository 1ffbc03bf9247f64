package clusterapi

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/coordinator"
)

// localAdmin submits operations to the coordinator, on this node or on the
// coordinator's node.
type localAdmin struct{ *Parts }

func (s localAdmin) MoveShard(ctx context.Context, shard sharding.ShardID, to sharding.NodeID) error {
	if uint32(shard) > s.ShardCount {
		return ErrUnknownShard
	}
	if err := s.checkMember(ctx, to); err != nil {
		return err
	}
	_, err := s.submit(ctx, coordinator.Operation{Kind: coordinator.OperationMove, Shard: shard, Node: to},
		func(ctx context.Context, c clusterv1connect.ClusterServiceClient) error {
			_, err := c.MoveShard(ctx, connect.NewRequest(&clusterv1.MoveShardRequest{ShardId: uint32(shard), ToNode: string(to)}))
			return err
		})
	return err
}

func (s localAdmin) Drain(ctx context.Context, node sharding.NodeID) error {
	if s.hasLeft(ctx, node) {
		return nil // the node leads no shard
	}
	err := s.aboutNode(ctx, coordinator.OperationDrain, node, func(ctx context.Context, c clusterv1connect.ClusterServiceClient) error {
		_, err := c.DrainNode(ctx, connect.NewRequest(&clusterv1.DrainNodeRequest{NodeId: string(node)}))
		return err
	})
	if err != nil || leaderproxy.FromPeer(ctx) {
		return err
	}
	return s.Member.AwaitClusterView(ctx) // the caller then checks on this node whether the operation is pending
}

func (s localAdmin) Resume(ctx context.Context, node sharding.NodeID) error {
	return s.aboutNode(ctx, coordinator.OperationResume, node, func(ctx context.Context, c clusterv1connect.ClusterServiceClient) error {
		_, err := c.ResumeNode(ctx, connect.NewRequest(&clusterv1.ResumeNodeRequest{NodeId: string(node)}))
		return err
	})
}

func (s localAdmin) Leave(ctx context.Context, node sharding.NodeID) error {
	if s.hasLeft(ctx, node) {
		return nil // the node has left already
	}
	return s.aboutNode(ctx, coordinator.OperationLeave, node, func(ctx context.Context, c clusterv1connect.ClusterServiceClient) error {
		_, err := c.RemoveNode(ctx, connect.NewRequest(&clusterv1.RemoveNodeRequest{NodeId: string(node)}))
		return err
	})
}

func (s localAdmin) Down(ctx context.Context, node sharding.NodeID) error {
	return s.aboutNode(ctx, coordinator.OperationDown, node, func(ctx context.Context, c clusterv1connect.ClusterServiceClient) error {
		_, err := c.DownNode(ctx, connect.NewRequest(&clusterv1.DownNodeRequest{NodeId: string(node)}))
		return err
	})
}

// aboutNode submits an operation that concerns one member.
func (s localAdmin) aboutNode(ctx context.Context, kind coordinator.OperationKind, node sharding.NodeID, elsewhere func(context.Context, clusterv1connect.ClusterServiceClient) error) error {
	if err := s.checkMember(ctx, node); err != nil {
		return err
	}
	_, err := s.submit(ctx, coordinator.Operation{Kind: kind, Node: node}, elsewhere)
	return err
}

func (s localAdmin) Rebalance(ctx context.Context) (moves uint32, err error) {
	remaining, err := s.submit(ctx, coordinator.Operation{Kind: coordinator.OperationRebalance},
		func(ctx context.Context, c clusterv1connect.ClusterServiceClient) error {
			res, err := c.RebalanceShards(ctx, connect.NewRequest(&clusterv1.RebalanceShardsRequest{}))
			if err == nil {
				moves = res.Msg.GetMoves()
			}
			return err
		})
	return moves + uint32(remaining), err
}

func (s localAdmin) checkMember(ctx context.Context, node sharding.NodeID) error {
	if _, ok := s.Metadata.View().Member(node); ok {
		return nil
	}
	if s.Metadata.Confirm(ctx) != nil {
		return request.ErrNotReady
	}
	if _, ok := s.Metadata.View().Member(node); !ok {
		return ErrUnknownNode
	}
	return nil
}

// hasLeft reports whether the node was a member and is no longer a member.
// If this node itself has left, its own metadata does not say so, because
// the cluster no longer replicates it to this node.
func (s localAdmin) hasLeft(ctx context.Context, node sharding.NodeID) bool {
	if node == s.Self && s.Member.HasLeft() {
		return true
	}
	return errors.Is(s.checkMember(ctx, node), ErrUnknownNode) && s.Metadata.View().HasLeft(node)
}

// submit submits an operation on this node or, if the coordinator runs on a
// different node, calls the function elsewhere for that node.
func (s localAdmin) submit(ctx context.Context, o coordinator.Operation, elsewhere func(context.Context, clusterv1connect.ClusterServiceClient) error) (remaining int, err error) {
	remaining, err = s.Member.Operate(ctx, o)
	var away *sharding.NotLeaderError
	switch {
	case errors.Is(err, coordinator.ErrRefused):
		return 0, &status.RefusedError{Reason: err.Error()}
	case !errors.As(err, &away) || away.Leader == "" || away.Leader == s.Self || leaderproxy.FromPeer(ctx):
		return remaining, err
	}
	client, base, err := s.Peers.Client(away.Leader)
	if err != nil {
		return 0, away
	}
	// If that node no longer accepts this node as a member, CallerError
	// makes the caller try again. Meanwhile this node finds out that it has
	// left.
	return 0, leaderproxy.CallerError(elsewhere(ctx, clusterv1connect.NewClusterServiceClient(leaderproxy.Telling(client), base+strings.TrimSuffix(leaderproxy.Path, "/"))))
}
