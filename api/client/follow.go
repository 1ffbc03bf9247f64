package client

import (
	"context"
	"iter"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

// WatchCluster yields the current view of the cluster and then its changes, as
// long as ctx lasts. If a node fails, it continues at another node; NodeId
// identifies the node whose view each item is. An error ends it.
func (c *Client) WatchCluster(ctx context.Context) iter.Seq2[*clusterv1.WatchClusterResponse, error] {
	return func(yield func(*clusterv1.WatchClusterResponse, error) bool) {
		err := follow(ctx, c, func(n *node, ctx context.Context) (*connect.ServerStreamForClient[clusterv1.WatchClusterResponse], bool, error) {
			s, err := n.cluster.WatchCluster(ctx, connect.NewRequest(&clusterv1.WatchClusterRequest{}))
			return s, true, err
		}, func(m *clusterv1.WatchClusterResponse) bool { return yield(m, nil) })
		if err != nil {
			yield(nil, err)
		}
	}
}

// maxFollowFailures is how many attempts in a row may fail before following
// gives up.
const maxFollowFailures = 20

// follow opens a stream at one node after another and passes the messages to
// show. It ends when show or open asks it to, or when too many attempts have
// failed.
func follow[Res any](ctx context.Context, c *Client, open func(*node, context.Context) (*connect.ServerStreamForClient[Res], bool, error), show func(*Res) bool) error {
	pause := newBackoff(c.opts)
	for failures := 0; ; {
		n, at := c.current()
		came, wanted, err := followOnce(ctx, n, open, show)
		if !wanted {
			return nil
		}
		if came {
			failures = 0
			pause.reset()
		}
		failures++
		if err != nil && (!judge(err).retry || failures > maxFollowFailures) || ctx.Err() != nil {
			return clientError(err)
		}
		c.next(at)
		if pause.wait(ctx) != nil {
			return clientError(err)
		}
	}
}

// followOnce passes the messages of one node to show. It returns whether any
// message arrived, whether the caller wants more, and why the stream ended.
func followOnce[Res any](ctx context.Context, n *node, open func(*node, context.Context) (*connect.ServerStreamForClient[Res], bool, error), show func(*Res) bool) (came, wanted bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, wanted, err := open(n, ctx)
	if err != nil || !wanted {
		return false, wanted, err
	}
	defer s.Close()
	for s.Receive() {
		came = true
		if !show(s.Msg()) {
			return came, false, nil
		}
	}
	return came, true, s.Err()
}
