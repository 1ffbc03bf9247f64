package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/debugging"
	"github.com/hostd/hostd/cmd/hostd/internal/shortage"
	"github.com/hostd/hostd/host/config"
	"github.com/hostd/hostd/sharding/meta"
)

func newNode(std cli.Stdio) *cobra.Command {
	return cli.Group("node", "List, profile, drain and remove nodes", newNodeList(std), newNodeDrain(std), newNodeResume(std), newNodeLeave(std), newNodeDown(std), debugging.NewProfile(std))
}

func newNodeList(std cli.Stdio) *cobra.Command {
	return cli.Ask(std, "ls", "List the nodes of the cluster and its under-replicated shards", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (nodeList, error) {
		res, err := s.Cluster(ctx)
		if err != nil {
			return nodeList{}, err
		}
		lack, shown := shortage.Look(ctx, s, res.GetPolicy(), res.GetMembers()), &cli.Object{}
		shown.Set("members", cli.Views(res.GetMembers()))
		lack.Set(shown)
		return nodeList{shown, res.GetMembers(), lack}, nil
	}, func(w io.Writer, v nodeList) { memberTable(w, v.members) })
}

type nodeList struct {
	*cli.Object
	members []*clusterv1.Member
	lack    shortage.Shortage
}

// Remark implements cli.Remark.
func (v nodeList) Remark() (line string, failure error) { return v.lack.Line(), nil }

// orderAttempt is the maximum time that one call waits until an order is
// carried out. After that time, longOrder prints the progress and calls
// again.
const orderAttempt = 5 * time.Second

func newNodeDrain(std cli.Stdio) *cobra.Command {
	c := longOrder(std, "drain [NODE]", "Drain a node: move its leaderships to other nodes so that it can be stopped", func(ctx context.Context, s *cli.Session, node string) (string, error) {
		moved, err := s.Drain(ctx, node)
		if err == nil && moved == 0 && !isMember(ctx, s, node) {
			return node + " is no longer a member of the cluster and leads no shards: it can be stopped", nil
		}
		return fmt.Sprintf("%s no longer leads any shard, %d shards moved: it can be stopped", node, moved), err
	})
	c.Long = "Drains a node: moves its leaderships to other nodes so that it can be stopped. The drain lasts until 'hostd node resume' or the node's next start. " +
		"Without NODE it drains the node that the environment variable " + nodeVariable + " names, so that hooks that cannot expand variables, such as those of Kubernetes, can call it. It succeeds for a node that has left the cluster, because that node leads no shards."
	return c
}

// isMember reports whether a node is a member. It returns true if it cannot
// find out.
func isMember(ctx context.Context, s *cli.Session, node string) bool {
	res, err := s.Cluster(ctx)
	return err != nil || slices.ContainsFunc(res.GetMembers(), func(m *clusterv1.Member) bool { return m.GetNodeId() == node })
}

// nodeVariable names the node that runs here.
var nodeVariable = config.EnvName("node-id")

func newNodeLeave(std cli.Stdio) *cobra.Command {
	asked := false
	c := longOrder(std, "leave NODE", "Remove a node from the cluster and move its replicas to other nodes", func(ctx context.Context, s *cli.Session, node string) (string, error) {
		err := s.Leave(ctx, node)
		if client.IsNotFound(err) && asked {
			err = nil // the node has left; before cluster version 3 the cluster forgets members that left
		}
		asked = true
		return fmt.Sprintf("%s has left the cluster and can be shut down", node), err
	})
	c.Long = "Removes a node from the cluster permanently, after moving its replicas to other nodes if there are enough. " +
		"To stop a node temporarily, drain it instead. The command can be repeated after the node has left, but fails with not_found for a node that was never a member."
	cli.AddConfirm(c, std, func(args []string) string {
		return fmt.Sprintf("Remove node %s from the cluster permanently?", cli.Clean(args[0]))
	})
	return c
}

// longOrder returns a command that repeats an order until it is done, and
// prints its progress, because a cluster may need more time than a single call
// allows. Once the order is known to be pending, attempts that fail because the
// coordinator changes are repeated too. give returns the message at the end. If NODE is optional in use, it
// defaults to the node that nodeVariable names.
func longOrder(std cli.Stdio, use, short string, give func(ctx context.Context, s *cli.Session, node string) (string, error)) *cobra.Command {
	least := 1
	if strings.Contains(use, "[") {
		least = 0
	}
	c := cli.Order(std, use, short, least, 1, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		node := cmp.Or(cli.First(args), os.Getenv(nodeVariable))
		kind, _, _ := strings.Cut(use, " ")
		pending := ""
		for {
			attempt, stop := context.WithTimeout(ctx, min(orderAttempt, s.Timeout/2))
			done, err := give(attempt, s, node)
			stop()
			switch code := client.CodeOf(err); {
			case err == nil || code != connect.CodeDeadlineExceeded && (pending == "" || code != connect.CodeUnknown && code != connect.CodeUnavailable):
				return done, err
			case ctx.Err() == nil:
				pending = printProgress(ctx, s, kind, node, pending)
			case pending != "":
				return "", fmt.Errorf("the operation is pending, and 'hostd cluster status' shows it until it has ended: %s", pending)
			default:
				return done, err
			}
		}
	})
	cli.SetTimeout(c, 10*time.Minute)
	cli.Before(c, func(args []string) error {
		if len(args) == 0 && os.Getenv(nodeVariable) == "" {
			return cli.Usagef("name a node, or set %s", nodeVariable)
		}
		return nil
	})
	return c
}

// printProgress prints what a node still leads and holds, and returns what the
// order is waiting for. If no node answers, it returns known.
func printProgress(ctx context.Context, s *cli.Session, kind, node, known string) (waits string) {
	res, err := s.Cluster(ctx)
	if err != nil {
		return known
	}
	after := ""
	for _, p := range res.GetPendingOperations() {
		if p.GetNodeId() == node && p.GetKind() == kind {
			waits = cli.Clean(p.GetReason())
			after = ": " + waits
		}
	}
	for _, m := range res.GetMembers() {
		if m.GetNodeId() == node {
			fmt.Fprintf(s.Std.Err, "%s still leads %d shards and holds %d replicas%s\n", node, m.GetLeaderCount(), m.GetReplicaCount(), after)
		}
	}
	return waits
}

func newNodeResume(std cli.Stdio) *cobra.Command {
	return cli.Order(std, "resume NODE", "Resume a node that was drained or is leaving, so that it gets shards again", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		return args[0] + " can get shards again", s.Resume(ctx, args[0])
	})
}

func newNodeDown(std cli.Stdio) *cobra.Command {
	c := cli.Order(std, "down NODE", "Declare a node dead and replace its replicas", 1, 1, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		if err := s.Down(ctx, args[0]); err != nil {
			return "", err
		}
		return strings.Join(append([]string{args[0] + " is down"}, effectOfDown(ctx, s, args[0])...), "\n"), nil
	})
	c.Long = "Declares a node dead at once instead of after dead-after, and replaces its replicas if there are " +
		"nodes for them. If there are not, it prints what the shards lack, and which nodes that are leaving no longer wait for this one. If the node comes back, it joins as a new node."
	cli.AddConfirm(c, std, func(args []string) string {
		return fmt.Sprintf("Declare node %s dead and replace its replicas?", cli.Clean(args[0]))
	})
	return c
}

// effectOfDown describes what shards lack without the node, and which leaving
// nodes are no longer held back by it. It returns no lines if no node answers.
func effectOfDown(ctx context.Context, s *cli.Session, down string) (lines []string) {
	res, err := s.Cluster(ctx)
	if err != nil {
		return nil
	}
	var leaving []string
	stay := 0
	for _, m := range res.GetMembers() {
		switch {
		case m.GetNodeId() == down:
			// The asked node may not have learned yet that the node is down.
			m.Status = string(meta.StatusDown)
		case slices.Contains(m.GetRoles(), string(meta.RoleProxy)):
		case m.GetStatus() == "leaving":
			leaving = append(leaving, cli.Clean(m.GetNodeId()))
		case m.GetStatus() == "up":
			stay++
		}
	}
	lack := shortage.Look(ctx, s, res.GetPolicy(), res.GetMembers())
	for _, line := range []string{lack.Line(), lack.Tolerance()} {
		if line != "" {
			lines = append(lines, line)
		}
	}
	want := int(cmp.Or(res.GetPolicy().GetReplication(), uint32(meta.DefaultPolicy.Replication)))
	if len(leaving) > 0 && stay < want {
		lines = append(lines, fmt.Sprintf("%s will leave without a replacement: shards keep %d of the %d replicas that they should have; 'hostd node resume' cancels that", strings.Join(leaving, ", "), stay, want))
	}
	return lines
}
