package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

func newCluster(std stdio) *cobra.Command {
	return group("cluster", "Look at the cluster and even it out", newClusterStatus(std), newClusterWatch(std), newClusterRebalance(std))
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
	Zone         string   `json:"zone"`
	Draining     bool     `json:"draining"`
}

type clusterView struct {
	NodeID      string       `json:"nodeId"`
	Coordinator string       `json:"coordinator"`
	Quorum      bool         `json:"quorum"`
	ShardCount  uint32       `json:"shardCount"`
	Members     []memberView `json:"members"`
}

// clusterState is what a call or a watch says of the cluster.
type clusterState interface {
	GetNodeId() string
	GetCoordinator() string
	GetQuorum() bool
	GetShardCount() uint32
	GetMembers() []*clusterv1.Member
}

func viewCluster(s clusterState) clusterView {
	v := clusterView{NodeID: s.GetNodeId(), Coordinator: s.GetCoordinator(), Quorum: s.GetQuorum(), ShardCount: s.GetShardCount(), Members: []memberView{}}
	for _, m := range s.GetMembers() {
		v.Members = append(v.Members, memberView{m.GetNodeId(), m.GetAddress(), m.GetStatus(), m.GetReachable(),
			append([]string{}, m.GetRoles()...), m.GetLeaderCount(), m.GetReplicaCount(), m.GetVersion(), m.GetZone(), m.GetDraining()})
	}
	return v
}

func memberTable(w io.Writer, members []memberView) {
	table(w, "NODE\tADDRESS\tSTATUS\tREACHABLE\tLEADS\tREPLICAS\tROLES\tZONE\tVERSION", func(row func(...any)) {
		for _, m := range members {
			status := m.Status
			if m.Draining {
				status += ",draining"
			}
			row(m.NodeID, m.Address, status, m.Reachable, m.LeaderCount, m.ReplicaCount, strings.Join(m.Roles, ","), m.Zone, m.Version)
		}
	})
}

func clusterTable(w io.Writer, v clusterView) {
	coordinator, quorum := v.Coordinator, "yes"
	if coordinator == "" {
		coordinator = "none known"
	}
	if !v.Quorum {
		quorum = "NO"
	}
	fmt.Fprintf(w, "coordinator %s, quorum %s, %d shards, seen by %s\n\n", clean(coordinator), quorum, v.ShardCount, clean(v.NodeID))
	memberTable(w, v.Members)
}

func newClusterStatus(std stdio) *cobra.Command {
	var watch bool
	c := clusterCommand(std, "status", "Show the members, the coordinator and whether there is a quorum", func(ctx context.Context, r *remote, out *output) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		if !watch {
			res, err := c.Cluster(ctx)
			if err != nil {
				return err
			}
			v := viewCluster(res)
			return out.print(v, func(w io.Writer) { clusterTable(w, v) })
		}
		for s, err := range c.WatchCluster(ctx) {
			if err != nil {
				return following(ctx, true, err)
			}
			v := viewCluster(s)
			if err := out.each(v, func(w io.Writer) {
				fmt.Fprintf(w, "%s\n", time.Now().UTC().Format(time.RFC3339))
				clusterTable(w, v)
				fmt.Fprintln(w)
			}); err != nil {
				return err
			}
		}
		return nil
	})
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show it again after every change, until interrupted")
	return c
}

func newClusterWatch(std stdio) *cobra.Command {
	return clusterCommand(std, "watch", "Print what changes in the cluster, a line for each change", func(ctx context.Context, r *remote, out *output) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		var before *clusterView
		for s, err := range c.WatchCluster(ctx) {
			if err != nil {
				return following(ctx, true, err)
			}
			v := viewCluster(s)
			for _, change := range clusterChanges(before, v) {
				change.Time = time.Now().UTC()
				if err := out.line(change, change.text()); err != nil {
					return err
				}
			}
			before = &v
		}
		return nil
	})
}

func newClusterRebalance(std stdio) *cobra.Command {
	var r *remote
	c := leaf("rebalance", "Even out leaders and replicas now", 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		c, err := r.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		moves, err := c.Rebalance(ctx)
		if err != nil {
			return fmt.Errorf("rebalance: %w", err)
		}
		if moves == 0 {
			fmt.Fprintln(std.err, "the cluster is even: nothing moves")
			return nil
		}
		fmt.Fprintf(std.err, "%d moves started; 'hostd cluster watch' shows them\n", moves)
		return nil
	})
	r = addRemote(c)
	return c
}

// clusterCommand makes a command that prints something of the cluster.
func clusterCommand(std stdio, use, short string, do func(context.Context, *remote, *output) error) *cobra.Command {
	var r *remote
	var out *output
	c := leaf(use, short, 0, 0, func(ctx context.Context, _ *cobra.Command, _ []string) error {
		if err := out.check(); err != nil {
			return err
		}
		return do(ctx, r, out)
	})
	r, out = addRemote(c), addOutput(c, std)
	return c
}
