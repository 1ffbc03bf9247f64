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
	return group("node", "Look at nodes and take them out", newNodeList(std), newNodeDrain(std), newNodeResume(std), newNodeLeave(std), newNodeDown(std))
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

// orderAttempt is how long one call waits for an order before the progress is
// told and the next one waits on.
const orderAttempt = 5 * time.Second

func newNodeDrain(std stdio) *cobra.Command {
	return longOrder(std, "drain NODE", "Move everything that a node leads to other nodes, so that it can be stopped", func(ctx context.Context, c *client.Client, node string) (string, error) {
		moved, err := c.Drain(ctx, node)
		return fmt.Sprintf("%s leads nothing any more, %d shards moved: it can be stopped", node, moved), err
	})
}

func newNodeLeave(std stdio) *cobra.Command {
	c := longOrder(std, "leave NODE", "Take a node out of the cluster: its replicas move to the others", func(ctx context.Context, c *client.Client, node string) (string, error) {
		return fmt.Sprintf("%s is no member any more: it can be switched off", node), c.Leave(ctx, node)
	})
	c.Long = "Takes a node out of the cluster for good. Its replicas move to other nodes as far as there are any, and the cluster becomes smaller by it. " +
		"To stop a node for a while, drain it."
	return c
}

// longOrder makes a command that gives an order again and again until it is
// done, and tells how far it is: a cluster may need longer than one call may
// take. give returns what to say at the end.
func longOrder(std stdio, use, short string, give func(ctx context.Context, c *client.Client, node string) (string, error)) *cobra.Command {
	var r *remote
	c := leaf(use, short, 1, 1, func(ctx context.Context, cmd *cobra.Command, args []string) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(ctx, r.timeout)
		defer cancel()
		for {
			attempt, stop := context.WithTimeout(ctx, orderAttempt)
			done, err := give(attempt, c, args[0])
			stop()
			switch {
			case err == nil:
				fmt.Fprintln(std.err, done)
				return nil
			case client.CodeOf(err) != connect.CodeDeadlineExceeded || ctx.Err() != nil:
				return fmt.Errorf("%s: %w", cmd.Name(), err)
			}
			tellProgress(ctx, std, c, args[0])
		}
	})
	r = addRemoteFor(c, 10*time.Minute)
	return c
}

// tellProgress says what a node still leads and holds.
func tellProgress(ctx context.Context, std stdio, c *client.Client, node string) {
	res, err := c.Cluster(ctx)
	if err != nil {
		return
	}
	for _, m := range res.GetMembers() {
		if m.GetNodeId() == node {
			fmt.Fprintf(std.err, "%s still leads %d shards and holds %d replicas\n", node, m.GetLeaderCount(), m.GetReplicaCount())
		}
	}
}

func newNodeResume(std stdio) *cobra.Command {
	var r *remote
	c := leaf("resume NODE", "Let a node that was drained, or is leaving, take on shards again", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.Resume(ctx, args[0]); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
		fmt.Fprintf(std.err, "%s takes on shards again\n", args[0])
		return nil
	})
	r = addRemote(c)
	return c
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
