package clusterapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/edge/leaderproxy"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/sharding"
)

// adminService implements the calls that move work within the cluster. It
// submits an operation to the coordinator and then polls the cluster until the
// operation has taken effect.
type adminService struct {
	admin   Admin
	cluster View
	log     *slog.Logger
}

const (
	// adminPoll is how often the effect of an operation is checked.
	adminPoll = 20 * time.Millisecond
	// answerTime is the part of a call's time that is reserved to report the
	// progress of the operation.
	answerTime = 250 * time.Millisecond
)

// MoveShard moves the leadership of a shard.
func (s *adminService) MoveShard(ctx context.Context, req *connect.Request[clusterv1.MoveShardRequest]) (*connect.Response[clusterv1.MoveShardResponse], error) {
	shard, to := sharding.ShardID(req.Msg.GetShardId()), sharding.NodeID(req.Msg.GetToNode())
	if err := s.admin.MoveShard(ctx, shard, to); err != nil {
		return nil, status.Public(s.log, err)
	}
	err := await(ctx, func() (string, error) {
		shards, err := s.cluster.Shards(ctx)
		if err != nil {
			return "", err
		}
		for _, sh := range shards {
			if sh.ID == shard && sh.Leader != to {
				return fmt.Sprintf("shard %d is still led by %s, and the transfer to %s continues; 'hostd shard ls' shows it", shard, nameOr(sh.Leader, "nobody"), to), nil
			}
		}
		return "", nil
	})
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&clusterv1.MoveShardResponse{}), nil
}

// DrainNode moves all leaderships away from a node.
func (s *adminService) DrainNode(ctx context.Context, req *connect.Request[clusterv1.DrainNodeRequest]) (*connect.Response[clusterv1.DrainNodeResponse], error) {
	node := sharding.NodeID(req.Msg.GetNodeId())
	before, err := s.leaders(ctx, node)
	if err == nil || errors.Is(err, ErrUnknownNode) { // a node that has left is an error here and success in the next call
		err = s.admin.Drain(ctx, node)
	}
	if err == nil {
		err = await(ctx, func() (string, error) {
			left, err := s.leaders(ctx, node)
			if errors.Is(err, ErrUnknownNode) {
				return "", nil // the node has left
			}
			if left == 0 && err == nil {
				return s.pendingDrain(ctx, node)
			}
			return fmt.Sprintf("%s still leads %d of %d shards, and their transfer continues; 'hostd node ls' shows it", node, left, max(left, before)), err
		})
	}
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&clusterv1.DrainNodeResponse{Moved: before}), nil
}

// pendingDrain describes the remaining work of a drain, for a node that does
// not seem to lead any more; it returns "" if the drain is done. If the
// coordinator does not receive the node's heartbeats, the node may still lead.
func (s *adminService) pendingDrain(ctx context.Context, node sharding.NodeID) (string, error) {
	o, err := s.cluster.Overview(ctx)
	for _, p := range o.PendingOperations {
		if p.GetKind() == "drain" && p.GetNodeId() == string(node) {
			return fmt.Sprintf("%s may still lead %d shards: %s", node, p.GetRemaining(), p.GetReason()), err
		}
	}
	return "", err
}

// ResumeNode allows a node to lead again.
func (s *adminService) ResumeNode(ctx context.Context, req *connect.Request[clusterv1.ResumeNodeRequest]) (*connect.Response[clusterv1.ResumeNodeResponse], error) {
	if err := s.admin.Resume(ctx, sharding.NodeID(req.Msg.GetNodeId())); err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&clusterv1.ResumeNodeResponse{}), nil
}

// RemoveNode removes a node from the cluster.
func (s *adminService) RemoveNode(ctx context.Context, req *connect.Request[clusterv1.RemoveNodeRequest]) (*connect.Response[clusterv1.RemoveNodeResponse], error) {
	node := sharding.NodeID(req.Msg.GetNodeId())
	err := s.admin.Leave(ctx, node)
	if err == nil {
		err = await(ctx, func() (string, error) {
			m, err := s.member(ctx, node)
			if errors.Is(err, ErrUnknownNode) {
				return "", nil
			}
			return fmt.Sprintf("%s is %s and still has %d replicas; the removal continues, and 'hostd node ls' shows it", node, m.Status, m.Replicas), err
		})
	}
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&clusterv1.RemoveNodeResponse{}), nil
}

// DownNode declares a node dead.
func (s *adminService) DownNode(ctx context.Context, req *connect.Request[clusterv1.DownNodeRequest]) (*connect.Response[clusterv1.DownNodeResponse], error) {
	if err := s.admin.Down(ctx, sharding.NodeID(req.Msg.GetNodeId())); err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&clusterv1.DownNodeResponse{}), nil
}

// RebalanceShards starts to balance the cluster.
func (s *adminService) RebalanceShards(ctx context.Context, _ *connect.Request[clusterv1.RebalanceShardsRequest]) (*connect.Response[clusterv1.RebalanceShardsResponse], error) {
	moves, err := s.admin.Rebalance(ctx)
	if err != nil {
		return nil, status.Public(s.log, err)
	}
	return connect.NewResponse(&clusterv1.RebalanceShardsResponse{Moves: moves}), nil
}

// leaders returns how many shards a member leads.
func (s *adminService) leaders(ctx context.Context, node sharding.NodeID) (uint32, error) {
	m, err := s.member(ctx, node)
	return m.Leaders, err
}

func (s *adminService) member(ctx context.Context, node sharding.NodeID) (Member, error) {
	o, err := s.cluster.Overview(ctx)
	if err != nil {
		return Member{}, err
	}
	for _, m := range o.Members {
		if m.ID == node {
			return m, nil
		}
	}
	return Member{}, ErrUnknownNode
}

// await polls pending, which describes the remaining work, until pending
// returns "". If the call's time is nearly over, await fails with the last
// description. It does not wait for a forwarded call, because the forwarding
// node waits itself.
func await(ctx context.Context, pending func() (string, error)) error {
	if leaderproxy.FromPeer(ctx) {
		return nil
	}
	patience := time.Hour // unused in practice: every call has a deadline
	if until, ok := ctx.Deadline(); ok {
		left := time.Until(until)
		patience = max(left/2, left-answerTime)
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	tick := time.NewTicker(adminPoll)
	defer tick.Stop()
	for {
		left, err := pending()
		if err != nil || left == "" {
			return err
		}
		select {
		case <-tick.C:
		case <-over.C:
			return &unfinishedError{left}
		case <-ctx.Done():
			return &unfinishedError{left}
		}
	}
}

func nameOr[T ~string](name T, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return string(name)
}
