package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

func newCluster(std stdio) *cobra.Command {
	return group("cluster", "Look at the cluster", newClusterStatus(std))
}

func newShard(std stdio) *cobra.Command {
	return group("shard", "Look at shards and move them", newShardList(std), newShardMove(std))
}

func newNode(std stdio) *cobra.Command {
	return group("node", "Look at nodes and take them out", newNodeList(std), newNodeDrain(std), newNodeDown(std))
}

// memberView is a member as it is printed.
type memberView struct {
	NodeID       string   `json:"nodeId"`
	Address      string   `json:"address"`
	Status       string   `json:"status"`
	Reachable    bool     `json:"reachable"`
	Roles        []string `json:"roles"`
	LeaderCount  uint32   `json:"leaderCount"`
	ReplicaCount uint32   `json:"replicaCount"`
	Version      string   `json:"version"`
}

type clusterView struct {
	NodeID      string       `json:"nodeId"`
	Coordinator string       `json:"coordinator"`
	Quorum      bool         `json:"quorum"`
	ShardCount  uint32       `json:"shardCount"`
	Members     []memberView `json:"members"`
}

func viewCluster(res *clusterv1.GetClusterResponse) clusterView {
	v := clusterView{NodeID: res.GetNodeId(), Coordinator: res.GetCoordinator(), Quorum: res.GetQuorum(), ShardCount: res.GetShardCount(), Members: []memberView{}}
	for _, m := range res.GetMembers() {
		v.Members = append(v.Members, memberView{m.GetNodeId(), m.GetAddress(), m.GetStatus(), m.GetReachable(),
			append([]string{}, m.GetRoles()...), m.GetLeaderCount(), m.GetReplicaCount(), m.GetVersion()})
	}
	return v
}

func memberTable(w io.Writer, members []memberView) {
	table(w, "NODE\tADDRESS\tSTATUS\tREACHABLE\tLEADS\tREPLICAS\tROLES\tVERSION", func(row func(...any)) {
		for _, m := range members {
			row(m.NodeID, m.Address, m.Status, m.Reachable, m.LeaderCount, m.ReplicaCount, strings.Join(m.Roles, ","), m.Version)
		}
	})
}

func newClusterStatus(std stdio) *cobra.Command {
	return clusterListing(std, "status", "Show the members, the coordinator and whether there is a quorum", func(out *output, v clusterView) error {
		return out.print(v, func(w io.Writer) {
			coordinator, quorum := v.Coordinator, "yes"
			if coordinator == "" {
				coordinator = "none known"
			}
			if !v.Quorum {
				quorum = "NO"
			}
			fmt.Fprintf(w, "coordinator %s, quorum %s, %d shards, seen by %s\n\n", clean(coordinator), quorum, v.ShardCount, clean(v.NodeID))
			memberTable(w, v.Members)
		})
	})
}

func newNodeList(std stdio) *cobra.Command {
	return clusterListing(std, "ls", "List the nodes of the cluster", func(out *output, v clusterView) error {
		members := struct {
			Members []memberView `json:"members"`
		}{v.Members}
		return out.print(members, func(w io.Writer) { memberTable(w, v.Members) })
	})
}

// clusterListing makes a command that prints something of the cluster.
func clusterListing(std stdio, use, short string, show func(*output, clusterView) error) *cobra.Command {
	var r *remote
	var out *output
	c := leaf(use, short, 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		res, err := c.Cluster(ctx)
		if err != nil {
			return err
		}
		return show(out, viewCluster(res))
	})
	r, out = addRemote(c), addOutput(c, std)
	return c
}

type shardView struct {
	ShardID      uint32   `json:"shardId"`
	Leader       string   `json:"leader"`
	Term         uint64   `json:"term"`
	Voters       []string `json:"voters"`
	Learners     []string `json:"learners"`
	EntityCount  uint64   `json:"entityCount"`
	AppliedIndex uint64   `json:"appliedIndex"`
	Bytes        uint64   `json:"bytes"`
}

func newShardList(std stdio) *cobra.Command {
	var r *remote
	var out *output
	c := leaf("ls", "List the shards: who leads them and how far they are", 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if err := out.check(); err != nil {
			return err
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		shards, err := c.Shards(ctx)
		if err != nil {
			return err
		}
		v := struct {
			Shards []shardView `json:"shards"`
		}{[]shardView{}}
		for _, s := range shards {
			v.Shards = append(v.Shards, shardView{s.GetShardId(), s.GetLeader(), s.GetTerm(), append([]string{}, s.GetVoters()...),
				append([]string{}, s.GetLearners()...), s.GetEntityCount(), s.GetAppliedIndex(), s.GetBytes()})
		}
		return out.print(v, func(w io.Writer) {
			table(w, "SHARD\tLEADER\tTERM\tVOTERS\tLEARNERS\tENTITIES\tAPPLIED\tBYTES", func(row func(...any)) {
				for _, s := range v.Shards {
					row(s.ShardID, s.Leader, s.Term, strings.Join(s.Voters, ","), strings.Join(s.Learners, ","), s.EntityCount, s.AppliedIndex, s.Bytes)
				}
			})
		})
	})
	r, out = addRemote(c), addOutput(c, std)
	return c
}

func newShardMove(std stdio) *cobra.Command {
	var r *remote
	c := leaf("move SHARD NODE", "Move a shard's leadership to a node", 2, 2, func(ctx context.Context, _ *cobra.Command, args []string) error {
		shard, err := strconv.ParseUint(args[0], 10, 32)
		if err != nil {
			return usagef("%q is not a shard's number", args[0])
		}
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if err := c.MoveShard(ctx, uint32(shard), args[1]); err != nil {
			return fmt.Errorf("move: %w", err)
		}
		fmt.Fprintf(std.err, "shard %d is led by %s\n", shard, args[1])
		return nil
	})
	r = addRemote(c)
	return c
}

func newNodeDrain(std stdio) *cobra.Command {
	var r *remote
	c := leaf("drain NODE", "Move everything that a node leads to other nodes", 1, 1, func(ctx context.Context, _ *cobra.Command, args []string) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		moved, err := c.Drain(ctx, args[0])
		if err != nil {
			return fmt.Errorf("drain: %w", err)
		}
		fmt.Fprintf(std.err, "%s leads nothing any more, %d shards moved\n", args[0], moved)
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
	r = addRemote(c)
	return c
}
