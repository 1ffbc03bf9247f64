package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/cmd/hostd/internal/shortage"
)

func newCluster(std cli.Stdio) *cobra.Command {
	return cli.Group("cluster", "Bootstrap, inspect, configure and upgrade the cluster", newClusterInit(std), newClusterStatus(std), newClusterWatch(std), newClusterRebalance(std), newClusterSet(std), newClusterUpgrade(std))
}

// clusterState is the state of the cluster in the response of a call or a
// watch.
type clusterState interface {
	proto.Message
	GetNodeId() string
	GetCoordinator() string
	GetQuorum() bool
	GetShardCount() uint32
	GetClusterVersion() uint32
	GetPolicy() *clusterv1.Policy
	GetMembers() []*clusterv1.Member
	GetPendingOperations() []*clusterv1.PendingOperation
}

func memberTable(w io.Writer, members []*clusterv1.Member) {
	cli.Table(w, "NODE\tADDRESS\tPEER ADDRESS\tSTATUS\tREACHABLE\tLEADS\tREPLICAS\tROLES\tZONE\tVERSION\tCLUSTER VERSIONS\tCLOCK\tLEADS AGAIN", func(row func(...any)) {
		for _, m := range members {
			status := m.GetStatus()
			if m.GetDraining() {
				status += ",draining"
			}
			if m.GetImpairment().GetSlow() {
				status += ",slow"
			}
			if n := m.GetImpairment().GetDamageCount(); n > 0 {
				status += ",damaged"
			}
			if m.GetImpairment().GetDiskFull() {
				status += ",disk-full"
			}
			row(m.GetNodeId(), m.GetAddress(), m.GetPeerAddress(), status, m.GetReachable(), m.GetLeaderCount(), m.GetReplicaCount(), strings.Join(m.GetRoles(), ","), m.GetZone(), m.GetVersion(),
				versionRange(m.GetMinClusterVersion(), m.GetMaxClusterVersion()), fmt.Sprintf("%+.1fs", m.GetClockSkew().AsDuration().Seconds()), leadsAgain(m.GetImpairment()))
		}
	})
}

// leadsAgain returns when an impaired node may lead shards again; "-" if the node
// is not impaired.
func leadsAgain(t *clusterv1.Impairment) string {
	switch {
	case t == nil:
		return "-"
	case t.GetDamageCount() > 0 && t.GetUntil() == nil:
		return "when it is resumed"
	case t.GetDiskFull():
		return "when its disk has room"
	case t.GetUntil() != nil:
		return t.GetUntil().AsTime().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s after it is quick", t.GetCooldown().AsDuration())
}

// clusterTable prints the cluster, followed by lines about its shards.
func clusterTable(w io.Writer, s clusterState, about ...string) {
	coordinator, quorum := s.GetCoordinator(), "yes"
	if coordinator == "" {
		coordinator = "unknown"
	}
	if !s.GetQuorum() {
		quorum = "NO"
	}
	fmt.Fprintf(w, "coordinator %s, quorum %s, %d shards, cluster version %d, seen by %s\n", cli.Clean(coordinator), quorum, s.GetShardCount(), max(s.GetClusterVersion(), 1), cli.Clean(s.GetNodeId()))
	showPolicy(w, s.GetPolicy())
	for _, line := range about {
		if line != "" {
			fmt.Fprintln(w, line)
		}
	}
	fmt.Fprintln(w)
	memberTable(w, s.GetMembers())
	if pending := s.GetPendingOperations(); len(pending) > 0 {
		fmt.Fprintln(w)
		pendingTable(w, pending)
	}
}

// pendingTable prints the accepted operations that are not complete yet.
func pendingTable(w io.Writer, pending []*clusterv1.PendingOperation) {
	cli.Table(w, "PENDING\tNODE\tSHARD\tSHARDS LEFT\tREASON", func(row func(...any)) {
		for _, o := range pending {
			node, shard := "-", "-"
			if o.GetNodeId() != "" {
				node = o.GetNodeId()
			}
			if o.GetShardId() != 0 {
				shard = fmt.Sprint(o.GetShardId())
			}
			row(o.GetKind(), node, shard, o.GetRemaining(), o.GetReason())
		}
	})
}

func newClusterStatus(std cli.Stdio) *cobra.Command {
	var out *cli.Output
	var watch bool
	c := cli.Talk(std, "status", "Show the cluster's members, coordinator, under-replicated shards and pending operations", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) error {
		if watch {
			return cli.Lines(ctx, out, true, s.WatchCluster(ctx), func(v *clusterv1.WatchClusterResponse) string {
				var text strings.Builder
				fmt.Fprintln(&text, time.Now().UTC().Format(time.RFC3339))
				clusterTable(&text, v)
				return text.String()
			})
		}
		v, err := s.Cluster(ctx)
		if err != nil {
			return err
		}
		lack, shown := shortage.Look(ctx, s, v.GetPolicy(), v.GetMembers()), cli.View(v)
		lack.Set(shown)
		return out.Print(shown, func(w io.Writer) { clusterTable(w, v, lack.Line(), lack.Tolerance()) })
	})
	out = cli.AddOutput(c, std)
	c.Flags().BoolVarP(&watch, "watch", "w", false, "print the status again after every change, until interrupted")
	return c
}

func newClusterWatch(std cli.Stdio) *cobra.Command {
	return cli.Follow(std, "watch", "Print the cluster's changes as they happen, one a line", 0, 0, cli.Always,
		func(ctx context.Context, s *cli.Session, _ []string) iter.Seq2[clusterChange, error] {
			return changesOf(s.WatchCluster(ctx))
		}, clusterChange.text)
}

func newClusterRebalance(std cli.Stdio) *cobra.Command {
	return cli.Order(std, "rebalance", "Rebalance leaderships and replicas now", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (string, error) {
		moves, err := s.Rebalance(ctx)
		if moves == 0 {
			return "the cluster is balanced: nothing to move", err
		}
		return fmt.Sprintf("%d moves started; 'hostd cluster watch' shows them", moves), err
	})
}

// versionRange formats the cluster versions that a release supports.
func versionRange(least, most uint32) string {
	switch {
	case most == 0:
		return "?"
	case least == most:
		return fmt.Sprint(most)
	}
	return fmt.Sprintf("%d-%d", least, most)
}

func newClusterUpgrade(std cli.Stdio) *cobra.Command {
	return cli.Group("upgrade", "Finalize rolling upgrades of the cluster", newClusterFinalize(std))
}

func newClusterFinalize(std cli.Stdio) *cobra.Command {
	var to uint32
	var dryRun bool
	c := cli.Ask(std, "finalize", "Finalize an upgrade: raise the cluster version, which cannot be undone", 0, 0,
		func(ctx context.Context, s *cli.Session, _ []string) (*clusterv1.FinalizeUpgradeResponse, error) {
			return s.FinalizeUpgrade(ctx, to, dryRun)
		}, finalizeTable)
	c.Long = "Raises the cluster version, the version of everything that the cluster writes, after every member runs a release that supports it. Before that, nodes can " +
		"return to the previous release; afterwards they cannot. With --dry-run it changes nothing and lists the versions that each member supports and what prevents the upgrade."
	c.Flags().Uint32Var(&to, "to", 0, "cluster `version` to raise to; 0 means the highest that the contacted node supports")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing; list the versions that each member supports and what prevents the upgrade")
	cli.SetTimeout(c, 30*time.Second) // the members probe each other during the call
	return c
}

func finalizeTable(w io.Writer, v *clusterv1.FinalizeUpgradeResponse) {
	fmt.Fprintf(w, "the cluster version is %d\n\n", v.GetClusterVersion())
	cli.Table(w, "NODE\tRELEASE\tCLUSTER VERSIONS", func(row func(...any)) {
		for _, n := range v.GetNodes() {
			row(n.GetNodeId(), n.GetVersion(), versionRange(n.GetMinClusterVersion(), n.GetMaxClusterVersion()))
		}
	})
	if v.GetClusterVersion() >= v.GetTargetClusterVersion() {
		return
	}
	fmt.Fprintln(w)
	clear := true
	for _, n := range v.GetNodes() {
		if n.GetObstacle() != "" {
			clear = false
			fmt.Fprintln(w, cli.Clean(n.GetObstacle()))
		}
	}
	if clear {
		fmt.Fprintf(w, "nothing prevents cluster version %d\n", v.GetTargetClusterVersion())
		return
	}
	fmt.Fprintf(w, "cluster version %d is possible after these problems are solved\n", v.GetTargetClusterVersion())
}

func newClusterInit(std cli.Stdio) *cobra.Command {
	c := cli.Ask(std, "init", "Bootstrap the cluster from a node that waits for one", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (*clusterv1.InitializeClusterResponse, error) {
		return s.Initialize(ctx)
	}, func(w io.Writer, v *clusterv1.InitializeClusterResponse) {
		if !v.GetBootstrapped() {
			fmt.Fprintf(w, "cluster %s exists; nothing was done\n", cli.Clean(v.GetClusterId()))
			return
		}
		fmt.Fprintf(w, "cluster %s bootstrapped\n", cli.Clean(v.GetClusterId()))
		if silent := v.GetUnreachableSeeds(); len(silent) > 0 {
			fmt.Fprintf(w, "seeds that did not answer: %s; make sure that none of them belongs to a different cluster\n", cli.Clean(strings.Join(silent, ", ")))
		}
	})
	c.Long = "Asks a node to bootstrap its cluster after a majority of the node and its seeds has answered and none of them belongs to a cluster. If the node or one of its " +
		"seeds already belongs to a cluster, the command prints the id of that cluster and changes nothing. It is safe to repeat, and to run on several nodes concurrently."
	return c
}
