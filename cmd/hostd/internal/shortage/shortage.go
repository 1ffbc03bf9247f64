// Package shortage reports which shards have fewer replicas than they should.
package shortage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/cmd/hostd/internal/cli"
	"github.com/hostd/hostd/sharding/meta"
)

// Shortage is the replicas that shards lack, as the asked node sees it. The
// zero value means that no shard lacks any.
type Shortage struct {
	// Replication is how many replicas a shard should have.
	Replication uint32
	// Lacking is the number of shards that have too few reachable voters.
	// Halted is the number of those shards that have no majority of their
	// voters, so that they serve nothing. Leaderless is the number of shards that
	// have a majority and no leader: an election is in progress, or the nodes of
	// some voters answer without voting.
	Lacking, Halted, Leaderless int
	// Survives is how many more nodes may fail, whichever they are, before some
	// shard loses its majority; negative if a shard has no majority now.
	// Weakest is the number of shards that survive no more failures than
	// Survives. Both are 0 if no shard is placed.
	Survives, Weakest int
	unknown           error
}

// Look reads the shards of a cluster with these members. A cluster with one
// member lacks nothing that it could have. If the shards cannot be read, the
// Shortage has the reason.
func Look(ctx context.Context, s *cli.Session, policy *clusterv1.Policy, members []*clusterv1.Member) Shortage {
	if len(members) < 2 {
		return Shortage{}
	}
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	shards, err := s.Shards(ctx)
	if err != nil {
		return Shortage{unknown: err}
	}
	return Of(policy, members, shards)
}

// Of counts the shards that lack replicas. A voter counts if its node is
// reachable, the node is not down, and the replica has not stopped.
func Of(policy *clusterv1.Policy, members []*clusterv1.Member, shards []*clusterv1.Shard) Shortage {
	out := Shortage{Replication: cmp.Or(policy.GetReplication(), uint32(meta.DefaultPolicy.Replication))}
	reached := map[string]bool{}
	for _, m := range members {
		reached[m.GetNodeId()] = m.GetReachable() && m.GetStatus() != string(meta.StatusDown)
	}
	for _, s := range shards {
		// Voters with a lost disk count for majorities.
		voters := len(s.GetVoters()) + len(s.GetLostVoters())
		if voters == 0 {
			continue // the shard is not placed yet
		}
		there := 0
		for _, node := range s.GetVoters() {
			stopped := slices.ContainsFunc(s.GetStopped(), func(r *clusterv1.StoppedReplica) bool { return r.GetNodeId() == node })
			if reached[node] && !stopped {
				there++
			}
		}
		if there < int(out.Replication) {
			out.Lacking++
		}
		if there <= voters/2 {
			out.Halted++
		} else if s.GetLeader() == "" {
			out.Leaderless++
		}
		switch survives := there - (voters/2 + 1); {
		case out.Weakest == 0 || survives < out.Survives:
			out.Survives, out.Weakest = survives, 1
		case survives == out.Survives:
			out.Weakest++
		}
	}
	return out
}

// Set adds the counts to the JSON output, unless they are unknown.
func (s Shortage) Set(o *cli.Object) {
	if s.unknown == nil {
		o.Set("shardsLackingReplicas", s.Lacking)
		o.Set("shardsWithoutMajority", s.Halted)
		o.Set("shardsWithoutLeader", s.Leaderless)
		survives := max(s.Survives, 0)
		if s.Leaderless > 0 {
			survives = 0
		}
		o.Set("lossesSurvived", survives)
	}
}

// Tolerance describes how many further nodes the cluster may lose, as a line
// without its line break. It is empty if that is unknown, or if a shard has no
// majority or no leader, which Line reports.
func (s Shortage) Tolerance() string {
	switch {
	case s.unknown != nil || s.Weakest == 0 || s.Survives < 0 || s.Leaderless > 0:
		return ""
	case s.Survives == 0:
		return fmt.Sprintf("%s not survive the loss of one more voter", shards(s.Weakest, "does", "do"))
	case s.Survives == 1:
		return "every shard survives the loss of 1 more node"
	}
	return fmt.Sprintf("every shard survives the loss of %d more nodes", s.Survives)
}

func shards(n int, one, more string) string {
	if n == 1 {
		return "1 shard " + one
	}
	return fmt.Sprintf("%d shards %s", n, more)
}

// Line describes the shortage, as a line without its line break; empty if there
// is none.
func (s Shortage) Line() string {
	var said strings.Builder
	switch {
	case s.unknown != nil:
		return fmt.Sprintf("cannot determine whether shards lack replicas: %s", cli.Clean(s.unknown.Error()))
	case s.Lacking == 0 && s.Halted == 0 && s.Leaderless == 0:
		return ""
	case s.Lacking == 1:
		fmt.Fprintf(&said, "1 shard has fewer than %d reachable replicas", s.Replication)
	case s.Lacking > 0:
		fmt.Fprintf(&said, "%d shards have fewer than %d reachable replicas", s.Lacking, s.Replication)
	}
	if s.Halted > 0 {
		if said.Len() > 0 {
			said.WriteString(", ")
		}
		fmt.Fprintf(&said, "%d without a majority, so their entities do not answer", s.Halted)
	}
	if s.Leaderless > 0 {
		switch {
		case said.Len() > 0:
			fmt.Fprintf(&said, ", %d have no leader, so their entities do not answer", s.Leaderless)
		case s.Leaderless == 1:
			said.WriteString("1 shard has no leader, so its entities do not answer")
		default:
			fmt.Fprintf(&said, "%d shards have no leader, so their entities do not answer", s.Leaderless)
		}
	}
	said.WriteString("; see 'hostd shard ls'")
	return said.String()
}
