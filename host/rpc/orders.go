package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/sharding"
)

// orderService answers the calls that move work within the cluster. It gives
// the order, then looks at the cluster until the order has had its effect.
type orderService struct {
	orders  Orders
	cluster Cluster
	log     *slog.Logger
}

const (
	// orderPoll is how often the effect of an order is looked for.
	orderPoll = 20 * time.Millisecond
	// answerTime is kept of a call's time to say how far the order has come.
	answerTime = 250 * time.Millisecond
)

// MoveShard moves a shard's leadership.
func (s *orderService) MoveShard(ctx context.Context, req *connect.Request[clusterv1.MoveShardRequest]) (*connect.Response[clusterv1.MoveShardResponse], error) {
	shard, to := sharding.ShardID(req.Msg.GetShardId()), sharding.NodeID(req.Msg.GetToNode())
	if err := s.orders.MoveShard(ctx, shard, to); err != nil {
		return nil, publicError(s.log, err)
	}
	err := s.await(ctx, func() (string, error) {
		shards, err := s.cluster.Shards(ctx)
		if err != nil {
			return "", err
		}
		for _, sh := range shards {
			if sh.ID == shard && sh.Leader != to {
				return fmt.Sprintf("shard %d is led by %s and goes on moving to %s; hostd shard ls shows it", shard, nameOr(sh.Leader, "nobody"), to), nil
			}
		}
		return "", nil
	})
	if err != nil {
		return nil, publicError(s.log, err)
	}
	return connect.NewResponse(&clusterv1.MoveShardResponse{}), nil
}

// Drain empties a node of leaders.
func (s *orderService) Drain(ctx context.Context, req *connect.Request[clusterv1.DrainRequest]) (*connect.Response[clusterv1.DrainResponse], error) {
	node := sharding.NodeID(req.Msg.GetNodeId())
	before, err := s.leaders(ctx, node)
	if err == nil {
		err = s.orders.Drain(ctx, node)
	}
	if err == nil {
		err = s.await(ctx, func() (string, error) {
			left, err := s.leaders(ctx, node)
			if left == 0 {
				return "", err
			}
			return fmt.Sprintf("%s still leads %d of %d shards and goes on handing them over; hostd node ls shows it", node, left, max(left, before)), nil
		})
	}
	if err != nil {
		return nil, publicError(s.log, err)
	}
	return connect.NewResponse(&clusterv1.DrainResponse{Moved: before}), nil
}

// Resume lets a node lead again.
func (s *orderService) Resume(ctx context.Context, req *connect.Request[clusterv1.ResumeRequest]) (*connect.Response[clusterv1.ResumeResponse], error) {
	if err := s.orders.Resume(ctx, sharding.NodeID(req.Msg.GetNodeId())); err != nil {
		return nil, publicError(s.log, err)
	}
	return connect.NewResponse(&clusterv1.ResumeResponse{}), nil
}

// Leave takes a node out of the cluster.
func (s *orderService) Leave(ctx context.Context, req *connect.Request[clusterv1.LeaveRequest]) (*connect.Response[clusterv1.LeaveResponse], error) {
	node := sharding.NodeID(req.Msg.GetNodeId())
	err := s.orders.Leave(ctx, node)
	if err == nil {
		err = s.await(ctx, func() (string, error) {
			m, err := s.member(ctx, node)
			if errors.Is(err, ErrUnknownNode) {
				return "", nil
			}
			return fmt.Sprintf("%s is %s and still holds %d replicas; it goes on leaving, and hostd node ls shows it", node, m.Status, m.Replicas), err
		})
	}
	if err != nil {
		return nil, publicError(s.log, err)
	}
	return connect.NewResponse(&clusterv1.LeaveResponse{}), nil
}

// Down gives up a node.
func (s *orderService) Down(ctx context.Context, req *connect.Request[clusterv1.DownRequest]) (*connect.Response[clusterv1.DownResponse], error) {
	if err := s.orders.Down(ctx, sharding.NodeID(req.Msg.GetNodeId())); err != nil {
		return nil, publicError(s.log, err)
	}
	return connect.NewResponse(&clusterv1.DownResponse{}), nil
}

// Rebalance starts to even out the cluster.
func (s *orderService) Rebalance(ctx context.Context, _ *connect.Request[clusterv1.RebalanceRequest]) (*connect.Response[clusterv1.RebalanceResponse], error) {
	moves, err := s.orders.Rebalance(ctx)
	if err != nil {
		return nil, publicError(s.log, err)
	}
	return connect.NewResponse(&clusterv1.RebalanceResponse{Moves: moves}), nil
}

// leaders returns how many shards a member leads.
func (s *orderService) leaders(ctx context.Context, node sharding.NodeID) (uint32, error) {
	m, err := s.member(ctx, node)
	return m.Leaders, err
}

func (s *orderService) member(ctx context.Context, node sharding.NodeID) (Member, error) {
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

// await looks until pending is empty, which is what is left to do, or until
// the call's time is nearly over, and then says what was left. A node that
// passed the order on waits itself.
func (s *orderService) await(ctx context.Context, pending func() (string, error)) error {
	if Hopped(ctx) {
		return nil
	}
	patience := time.Hour // every call has a deadline
	if until, ok := ctx.Deadline(); ok {
		left := time.Until(until)
		patience = max(left/2, left-answerTime)
	}
	over := time.NewTimer(patience)
	defer over.Stop()
	tick := time.NewTicker(orderPoll)
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

func nameOr(node sharding.NodeID, otherwise string) string {
	if node == "" {
		return otherwise
	}
	return string(node)
}
