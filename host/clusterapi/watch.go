package clusterapi

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/edge/admission"
	"github.com/hostd/hostd/host/status"
)

// watchInterval is how often a watched cluster is polled. Changes within an
// interval are sent together, which limits the rate of messages.
const watchInterval = 200 * time.Millisecond

// WatchCluster sends the state of the cluster, and sends it again whenever it
// changes. It compares the state with the last message that it sent, so it
// needs no queue, and a slow client may miss intermediate states but never the
// latest.
func (s *clusterService) WatchCluster(ctx context.Context, _ *connect.Request[clusterv1.WatchClusterRequest], out *connect.ServerStream[clusterv1.WatchClusterResponse]) error {
	open, err := s.guard.Enter(ctx)
	if err != nil {
		return status.Public(s.log, err)
	}
	defer open.Leave()
	// Send the headers now, because the first message may arrive late.
	if err := out.Send(nil); err != nil {
		return err
	}
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var last *clusterv1.WatchClusterResponse
	for {
		o, err := s.cluster.Overview(ctx)
		if err != nil {
			return status.Public(s.log, err)
		}
		now := &clusterv1.WatchClusterResponse{
			Members: members(o), Coordinator: string(o.Coordinator), Quorum: o.Quorum, NodeId: s.nodeID, ShardCount: o.ShardCount, ClusterVersion: uint32(o.ClusterVersion), Policy: policyMessage(o.Policy), PendingOperations: o.PendingOperations,
		}
		if last == nil || !proto.Equal(last, now) {
			open.BeginWrite()
			err := out.Send(now)
			open.EndWrite()
			if err != nil {
				return err
			}
			last = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return status.Public(s.log, ctx.Err())
		case <-s.guard.Stopping():
			return status.Public(s.log, admission.ErrStopping)
		}
	}
}
