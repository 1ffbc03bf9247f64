package client

import (
	"context"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

// Cluster returns the members as the answering node sees them.
func (c *Client) Cluster(ctx context.Context) (*clusterv1.GetClusterResponse, error) {
	return call(ctx, c, c.opts.Timeout, &clusterv1.GetClusterRequest{},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.GetClusterRequest]) (*connect.Response[clusterv1.GetClusterResponse], error) {
			return n.cluster.GetCluster(ctx, r)
		})
}

// Shards returns the shards as the answering node sees them.
func (c *Client) Shards(ctx context.Context) ([]*clusterv1.Shard, error) {
	return pages(func(token string) ([]*clusterv1.Shard, string, error) {
		res, err := call(ctx, c, c.opts.Timeout, &clusterv1.ListShardsRequest{PageToken: token},
			func(n *node, ctx context.Context, r *connect.Request[clusterv1.ListShardsRequest]) (*connect.Response[clusterv1.ListShardsResponse], error) {
				return n.cluster.ListShards(ctx, r)
			})
		return res.GetShards(), res.GetNextPageToken(), err
	})
}

// order is like call, for an operator's order to the cluster. If a node reports
// that the order is still in progress when the time is over, order returns that
// answer and does not ask another node.
func order[Req, Res any](ctx context.Context, c *Client, req *Req,
	do func(*node, context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) (*Res, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.slow())
		defer cancel()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var going error
	res, err := call(ctx, c, c.slow(), req, func(n *node, ctx context.Context, r *connect.Request[Req]) (*connect.Response[Res], error) {
		res, err := do(n, ctx, r)
		if connect.IsWireError(err) && connect.CodeOf(err) == connect.CodeDeadlineExceeded {
			going = clientError(err)
			cancel()
		}
		return res, err
	})
	if going != nil {
		return nil, going
	}
	return res, err
}

// MoveShard moves the leadership of a shard to a node. If the time is over
// before that node leads, the error has the code deadline_exceeded and the
// order remains in effect.
func (c *Client) MoveShard(ctx context.Context, shard uint32, toNode string) error {
	_, err := order(ctx, c, &clusterv1.MoveShardRequest{ShardId: shard, ToNode: toNode},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.MoveShardRequest]) (*connect.Response[clusterv1.MoveShardResponse], error) {
			return n.cluster.MoveShard(ctx, r)
		})
	return err
}

// Drain moves all leaderships of a node to other nodes and returns their
// number. If the time is over before all have moved, the error has the code
// deadline_exceeded and the order remains in effect.
func (c *Client) Drain(ctx context.Context, nodeID string) (moved uint32, err error) {
	res, err := order(ctx, c, &clusterv1.DrainNodeRequest{NodeId: nodeID},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.DrainNodeRequest]) (*connect.Response[clusterv1.DrainNodeResponse], error) {
			return n.cluster.DrainNode(ctx, r)
		})
	return res.GetMoved(), err
}

// Resume cancels Drain, and cancels Leave while the node is still a member.
func (c *Client) Resume(ctx context.Context, nodeID string) error {
	_, err := order(ctx, c, &clusterv1.ResumeNodeRequest{NodeId: nodeID},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.ResumeNodeRequest]) (*connect.Response[clusterv1.ResumeNodeResponse], error) {
			return n.cluster.ResumeNode(ctx, r)
		})
	return err
}

// Leave permanently removes a node from the cluster. If the node is still a
// member when the time is over, the error has the code deadline_exceeded and
// the order remains in effect.
func (c *Client) Leave(ctx context.Context, nodeID string) error {
	_, err := order(ctx, c, &clusterv1.RemoveNodeRequest{NodeId: nodeID},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.RemoveNodeRequest]) (*connect.Response[clusterv1.RemoveNodeResponse], error) {
			return n.cluster.RemoveNode(ctx, r)
		})
	return err
}

// Down declares a node dead.
func (c *Client) Down(ctx context.Context, nodeID string) error {
	_, err := order(ctx, c, &clusterv1.DownNodeRequest{NodeId: nodeID},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.DownNodeRequest]) (*connect.Response[clusterv1.DownNodeResponse], error) {
			return n.cluster.DownNode(ctx, r)
		})
	return err
}

// FinalizeUpgrade permanently raises the cluster version: to level, or to the
// highest version that the asked node supports if level is 0. A dry run changes
// nothing. The response has the version that each member supports, and the
// reasons that prevent the upgrade.
func (c *Client) FinalizeUpgrade(ctx context.Context, level uint32, dryRun bool) (*clusterv1.FinalizeUpgradeResponse, error) {
	return order(ctx, c, &clusterv1.FinalizeUpgradeRequest{ClusterVersion: level, DryRun: dryRun},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.FinalizeUpgradeRequest]) (*connect.Response[clusterv1.FinalizeUpgradeResponse], error) {
			return n.cluster.FinalizeUpgrade(ctx, r)
		})
}

// Initialize makes the asked node bootstrap its cluster, unless the node or one
// of its seeds belongs to a cluster already. If the time is over before the
// cluster is bootstrapped, the error has the code deadline_exceeded and the
// order remains in effect until the node stops.
func (c *Client) Initialize(ctx context.Context) (*clusterv1.InitializeClusterResponse, error) {
	return order(ctx, c, &clusterv1.InitializeClusterRequest{},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.InitializeClusterRequest]) (*connect.Response[clusterv1.InitializeClusterResponse], error) {
			return n.cluster.InitializeCluster(ctx, r)
		})
}

// SetPolicy changes the fields of the cluster's policy that the request sets,
// and returns the policy once it is durable.
func (c *Client) SetPolicy(ctx context.Context, change *clusterv1.SetPolicyRequest) (*clusterv1.Policy, error) {
	res, err := order(ctx, c, change,
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.SetPolicyRequest]) (*connect.Response[clusterv1.SetPolicyResponse], error) {
			return n.cluster.SetPolicy(ctx, r)
		})
	return res.GetPolicy(), err
}

// Rebalance starts to balance the cluster and returns the number of moves.
func (c *Client) Rebalance(ctx context.Context) (moves uint32, err error) {
	res, err := order(ctx, c, &clusterv1.RebalanceShardsRequest{},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.RebalanceShardsRequest]) (*connect.Response[clusterv1.RebalanceShardsResponse], error) {
			return n.cluster.RebalanceShards(ctx, r)
		})
	return res.GetMoves(), err
}
