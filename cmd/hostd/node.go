package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
)

func newNode(std stdio) *cobra.Command {
	return group("node", "Look at nodes and take them out", newNodeList(std), newNodeDrain(std), newNodeDown(std))
}

func newNodeList(std stdio) *cobra.Command {
	return clusterCommand(std, "ls", "List the nodes of the cluster", func(ctx context.Context, r *remote, out *output) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		res, err := c.Cluster(ctx)
		if err != nil {
			return err
		}
		v := struct {
			Members []memberView `json:"members"`
		}{viewCluster(res).Members}
		return out.print(v, func(w io.Writer) { memberTable(w, v.Members) })
	})
}

// drainAttempt is how long one call waits for a drain before the progress is
// told and the next one waits on.
const drainAttempt = 5 * time.Second

func newNodeDrain(std stdio) *cobra.Command {
	var r *remote
	c := leaf("drain NODE", "Move everything that a node leads to other nodes, and give it nothing new", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		moved, err := drain(ctx, std, c, args[0])
		if err != nil {
			return fmt.Errorf("drain: %w", err)
		}
		fmt.Fprintf(std.err, "%s leads nothing any more, %d shards moved: it can be stopped\n", args[0], moved)
		return nil
	})
	r = addRemoteFor(c, 5*time.Minute)
	return c
}

// drain gives the order again and again until it is done, and tells how far it
// is: a cluster may need longer than one call may take.
func drain(ctx context.Context, std stdio, c *client.Client, node string) (moved uint32, err error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, drainAttempt)
		n, err := c.Drain(attempt, node)
		cancel()
		moved = max(moved, n)
		if client.CodeOf(err) != connect.CodeDeadlineExceeded || ctx.Err() != nil {
			return moved, err
		}
		if leads, ok := leadCount(ctx, c, node); ok {
			moved = max(moved, leads)
			fmt.Fprintf(std.err, "%s still leads %d shards\n", node, leads)
		}
	}
}

// leadCount asks how many shards a node leads.
func leadCount(ctx context.Context, c *client.Client, node string) (uint32, bool) {
	res, err := c.Cluster(ctx)
	if err != nil {
		return 0, false
	}
	for _, m := range res.GetMembers() {
		if m.GetNodeId() == node {
			return m.GetLeaderCount(), true
		}
	}
	return 0, false
}

func newNodeDown(std stdio) *cobra.Command {
	var r *remote
	c := leaf("down NODE", "Declare a node dead; its replicas are replaced", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.Down(ctx, args[0]); err != nil {
			return fmt.Errorf("down: %w", err)
		}
		fmt.Fprintf(std.err, "%s is down\n", args[0])
		return nil
	})
	c.Long = "Declares a node dead at once, instead of after the time that is configured as dead-after; its replicas are replaced where there are " +
		"nodes for them. A node that comes back after this joins as a new one."
	r = addRemote(c)
	return c
}
