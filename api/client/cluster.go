package client

import (
	"context"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

// Cluster describes the members as the answering node sees them.
func (c *Client) Cluster(ctx context.Context) (*clusterv1.GetClusterResponse, error) {
	return call(ctx, c, c.opts.Timeout, &clusterv1.GetClusterRequest{},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.GetClusterRequest]) (*connect.Response[clusterv1.GetClusterResponse], error) {
			return n.cluster.GetCluster(ctx, r)
		})
}

// Shards describes the shards as the answering node sees them.
func (c *Client) Shards(ctx context.Context) ([]*clusterv1.Shard, error) {
	res, err := call(ctx, c, c.opts.Timeout, &clusterv1.ListShardsRequest{},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.ListShardsRequest]) (*connect.Response[clusterv1.ListShardsResponse], error) {
			return n.cluster.ListShards(ctx, r)
		})
	return res.GetShards(), err
}

// MoveShard moves a shard's leadership to a node.
func (c *Client) MoveShard(ctx context.Context, shard uint32, toNode string) error {
	_, err := call(ctx, c, c.slow(), &clusterv1.MoveShardRequest{ShardId: shard, ToNode: toNode},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.MoveShardRequest]) (*connect.Response[clusterv1.MoveShardResponse], error) {
			return n.cluster.MoveShard(ctx, r)
		})
	return err
}

// Drain moves everything a node leads to other nodes and returns how much.
func (c *Client) Drain(ctx context.Context, nodeID string) (moved uint32, err error) {
	res, err := call(ctx, c, c.slow(), &clusterv1.DrainRequest{NodeId: nodeID},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.DrainRequest]) (*connect.Response[clusterv1.DrainResponse], error) {
			return n.cluster.Drain(ctx, r)
		})
	return res.GetMoved(), err
}

// Down declares a node dead.
func (c *Client) Down(ctx context.Context, nodeID string) error {
	_, err := call(ctx, c, c.slow(), &clusterv1.DownRequest{NodeId: nodeID},
		func(n *node, ctx context.Context, r *connect.Request[clusterv1.DownRequest]) (*connect.Response[clusterv1.DownResponse], error) {
			return n.cluster.Down(ctx, r)
		})
	return err
}
