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
	return cli.Group("cluster", "Found the cluster, look at it and even it out", newClusterInit(std), newClusterStatus(std), newClusterWatch(std), newClusterRebalance(std), newClusterSet(std), newClusterRaiseLevel(std))
}

// clusterState is what a call or a watch says of the cluster.
type clusterState interface {
	proto.Message
	GetNodeId() string
	GetCoordinator() string
	GetQuorum() bool
	GetShardCount() uint32
	GetLevel() uint32
	GetPolicy() *clusterv1.Policy
	GetMembers() []*clusterv1.Member
	GetPendingOrders() []*clusterv1.PendingOrder
}

func memberTable(w io.Writer, members []*clusterv1.Member) {
	cli.Table(w, "NODE\tADDRESS\tPEER ADDRESS\tSTATUS\tREACHABLE\tLEADS\tREPLICAS\tROLES\tZONE\tVERSION\tLEVELS\tCLOCK\tLEADS AGAIN", func(row func(...any)) {
		for _, m := range members {
			status := m.GetStatus()
			if m.GetDraining() {
				status += ",draining"
			}
			if m.GetTrouble().GetSlow() {
				status += ",slow"
			}
			if n := m.GetTrouble().GetDamages(); n > 0 {
				status += ",damaged"
			}
			if m.GetTrouble().GetDiskFull() {
				status += ",disk-full"
			}
			row(m.GetNodeId(), m.GetAddress(), m.GetPeerAddress(), status, m.GetReachable(), m.GetLeaderCount(), m.GetReplicaCount(), strings.Join(m.GetRoles(), ","), m.GetZone(), m.GetVersion(),
				levelRange(m.GetMinLevel(), m.GetMaxLevel()), fmt.Sprintf("%+.1fs", float64(m.GetClockSkewMillis())/1000), leadsAgain(m.GetTrouble()))
		}
	})
}

// leadsAgain says when a node that is in trouble is given leaderships again; "-"
// for one that is given some.
func leadsAgain(t *clusterv1.Trouble) string {
	switch {
	case t == nil:
		return "-"
	case t.GetDamages() > 0 && t.GetUntil() == nil:
		return "when it is resumed"
	case t.GetDiskFull():
		return "when its disk has room"
	case t.GetUntil() != nil:
		return t.GetUntil().AsTime().Format(time.RFC3339)
	}
	return fmt.Sprintf("%s after it is quick", time.Duration(t.GetQuietMillis())*time.Millisecond)
}

// clusterTable shows the cluster, with lines about its shards.
func clusterTable(w io.Writer, s clusterState, about ...string) {
	coordinator, quorum := s.GetCoordinator(), "yes"
	if coordinator == "" {
		coordinator = "none known"
	}
	if !s.GetQuorum() {
		quorum = "NO"
	}
	fmt.Fprintf(w, "coordinator %s, quorum %s, %d shards, level %d, seen by %s\n", cli.Clean(coordinator), quorum, s.GetShardCount(), max(s.GetLevel(), 1), cli.Clean(s.GetNodeId()))
	showPolicy(w, s.GetPolicy())
	for _, line := range about {
		if line != "" {
			fmt.Fprintln(w, line)
		}
	}
	fmt.Fprintln(w)
	memberTable(w, s.GetMembers())
	if orders := s.GetPendingOrders(); len(orders) > 0 {
		fmt.Fprintln(w)
		pendingTable(w, orders)
	}
}

// pendingTable shows the accepted orders that are not carried out yet.
func pendingTable(w io.Writer, orders []*clusterv1.PendingOrder) {
	cli.Table(w, "PENDING\tNODE\tSHARD\tSHARDS LEFT\tREASON", func(row func(...any)) {
		for _, o := range orders {
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
	c := cli.Talk(std, "status", "Show the members, the coordinator, what shards lack and which orders are pending", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) error {
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
	c.Flags().BoolVarP(&watch, "watch", "w", false, "show it again after every change, until interrupted")
	return c
}

func newClusterWatch(std cli.Stdio) *cobra.Command {
	return cli.Follow(std, "watch", "Print what changes in the cluster, a line for each change", 0, 0, cli.Always,
		func(ctx context.Context, s *cli.Session, _ []string) iter.Seq2[clusterChange, error] {
			return changesOf(s.WatchCluster(ctx))
		}, clusterChange.text)
}

func newClusterRebalance(std cli.Stdio) *cobra.Command {
	return cli.Order(std, "rebalance", "Even out leaders and replicas now", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (string, error) {
		moves, err := s.Rebalance(ctx)
		if moves == 0 {
			return "nothing moves: the cluster is as even as nodes take shards", err
		}
		return fmt.Sprintf("%d moves started; 'hostd cluster watch' shows them", moves), err
	})
}

// levelRange is what a release speaks, for people.
func levelRange(least, most uint32) string {
	switch {
	case most == 0:
		return "?"
	case least == most:
		return fmt.Sprint(most)
	}
	return fmt.Sprintf("%d-%d", least, most)
}

func newClusterRaiseLevel(std cli.Stdio) *cobra.Command {
	var to uint32
	var dryRun bool
	c := cli.Ask(std, "raise-level", "Let the cluster write what all its members' releases can read, for good", 0, 0,
		func(ctx context.Context, s *cli.Session, _ []string) (*clusterv1.RaiseLevelResponse, error) {
			return s.RaiseLevel(ctx, to, dryRun)
		}, levelTable)
	c.Long = "Raises the level of the cluster, the version of all that it writes, once every member runs a release that speaks it. Until then nodes can be " +
		"put back to the release before, afterwards never again. With --dry-run it changes nothing and lists what each member speaks, and what stands in the way."
	c.Flags().Uint32Var(&to, "to", 0, "the level; 0: the highest that the asked node speaks")
	c.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing, and list what each member speaks and what stands in the way")
	cli.SetTimeout(c, 30*time.Second) // members look for each other meanwhile
	return c
}

func levelTable(w io.Writer, v *clusterv1.RaiseLevelResponse) {
	fmt.Fprintf(w, "the cluster is at level %d\n\n", v.GetLevel())
	cli.Table(w, "NODE\tVERSION\tLEVELS", func(row func(...any)) {
		for _, n := range v.GetNodes() {
			row(n.GetNodeId(), n.GetVersion(), levelRange(n.GetMinLevel(), n.GetMaxLevel()))
		}
	})
	if v.GetLevel() >= v.GetWanted() {
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
		fmt.Fprintf(w, "nothing stands in the way of level %d\n", v.GetWanted())
		return
	}
	fmt.Fprintf(w, "level %d can be had once nothing of this stands in the way\n", v.GetWanted())
}

func newClusterInit(std cli.Stdio) *cobra.Command {
	c := cli.Ask(std, "init", "Have a node found its cluster, once", 0, 0, func(ctx context.Context, s *cli.Session, _ []string) (*clusterv1.InitializeResponse, error) {
		return s.Initialize(ctx)
	}, func(w io.Writer, v *clusterv1.InitializeResponse) {
		if !v.GetFounded() {
			fmt.Fprintf(w, "cluster %s exists; nothing was done\n", cli.Clean(v.GetClusterId()))
			return
		}
		fmt.Fprintf(w, "cluster %s founded\n", cli.Clean(v.GetClusterId()))
		if silent := v.GetSilentSeeds(); len(silent) > 0 {
			fmt.Fprintf(w, "seeds that did not answer: %s; see to it that none of them belongs to another cluster\n", cli.Clean(strings.Join(silent, ", ")))
		}
	})
	c.Long = "Has a node that waits for a cluster found one, when a majority of it and its seeds answers and none belongs to a cluster. Where the node or one of its " +
		"seeds belongs to a cluster it founds none, and the id of that one is printed: it may be called again, and on several nodes at once."
	return c
}
