package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
)

// showPolicy prints the policy. A node of an earlier release returns none.
func showPolicy(w io.Writer, p *clusterv1.Policy) {
	if p == nil {
		return
	}
	rebalance, of := "off", ""
	if p.GetRebalance() {
		rebalance = "on"
	}
	if !p.GetStored() {
		of = " (by the flags of this node)"
	}
	fmt.Fprintf(w, "replication %d, min-members %d, rebalance %s, dead-after %v%s\n", p.GetReplication(), p.GetMinMembers(), rebalance, p.GetDeadAfter().AsDuration(), of)
}

// policyChange parses the arguments of 'cluster set'.
func policyChange(name, value string) (*clusterv1.SetPolicyRequest, error) {
	number := func() (*uint32, error) {
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%s: must be a number, got %q", name, value)
		}
		out := uint32(n)
		return &out, nil
	}
	var c clusterv1.SetPolicyRequest
	var err error
	switch name {
	case "replication":
		c.Replication, err = number()
	case "min-members":
		c.MinMembers, err = number()
	case "rebalance":
		on := value == "on"
		if !on && value != "off" {
			err = fmt.Errorf("rebalance: must be on or off, got %q", value)
		}
		c.Rebalance = &on
	case "dead-after":
		after, failed := time.ParseDuration(value)
		if failed != nil || after < time.Millisecond {
			err = fmt.Errorf("dead-after: must be a duration such as 5m or 90s, got %q", value)
		}
		c.DeadAfter = durationpb.New(after)
	default:
		err = fmt.Errorf("unknown policy %q: must be replication, min-members, rebalance or dead-after", name)
	}
	return &c, err
}

func newClusterSet(std cli.Stdio) *cobra.Command {
	c := cli.Order(std, "set NAME VALUE", "Set a policy of the cluster: replication, min-members, rebalance or dead-after", 2, 2, func(ctx context.Context, s *cli.Session, args []string) (string, error) {
		change, err := policyChange(args[0], args[1])
		if err != nil {
			return "", err
		}
		p, err := s.SetPolicy(ctx, change)
		if err != nil {
			return "", fmt.Errorf("%s: %w", args[0], err)
		}
		var text strings.Builder
		showPolicy(&text, p)
		return strings.TrimSuffix(text.String(), "\n"), nil
	})
	c.Long = "Sets a policy of the whole cluster, which is stored in its metadata. NAME is replication (1, 3, 5 or 7), min-members (a number), rebalance (on or off) or " +
		"dead-after (a duration such as 5m). The flags of 'hostd serve' with these names only apply when the cluster is bootstrapped. 'hostd cluster status' shows the current values."
	return c
}
