package shortage

import (
	"testing"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

// TestOnlyReachableVotersCount checks that only reachable voters count.
func TestOnlyReachableVotersCount(t *testing.T) {
	members := func(reached ...bool) (out []*clusterv1.Member) {
		for i, r := range reached {
			out = append(out, &clusterv1.Member{NodeId: string(rune('a' + i)), Status: "up", Reachable: r})
		}
		return out
	}
	shard := func(voters ...string) *clusterv1.Shard { return &clusterv1.Shard{Leader: "a", Voters: voters} }
	down := members(true, true, true)
	down[2].Status = "down"
	leaderless := shard("a", "b", "c")
	leaderless.Leader = ""
	stopped := shard("a", "b", "c")
	stopped.Stopped = []*clusterv1.StoppedReplica{{NodeId: "b", Reason: "damaged"}}
	three := &clusterv1.Policy{Replication: 3}
	lost := &clusterv1.Shard{Voters: []string{"a"}, LostVoters: []string{"b", "c"}}
	for name, c := range map[string]struct {
		policy  *clusterv1.Policy
		members []*clusterv1.Member
		shards  []*clusterv1.Shard
		lacking int
		halted  int
		says    string
	}{
		"all well":                 {three, members(true, true, true), []*clusterv1.Shard{shard("a", "b", "c"), shard("c", "a", "b")}, 0, 0, ""},
		"one node is dead":         {three, members(true, true, false, true), []*clusterv1.Shard{shard("a", "b", "c"), shard("a", "b", "d")}, 1, 0, "1 shard has fewer than 3 reachable replicas; see 'hostd shard ls'"},
		"two nodes are dead":       {three, members(true, false, false, true), []*clusterv1.Shard{shard("a", "b", "c"), shard("a", "b", "d")}, 2, 1, "2 shards have fewer than 3 reachable replicas, 1 without a majority, so their entities do not answer; see 'hostd shard ls'"},
		"a replica has stopped":    {three, members(true, true, true), []*clusterv1.Shard{stopped}, 1, 0, "1 shard has fewer than 3 reachable replicas; see 'hostd shard ls'"},
		"two disks are lost":       {three, members(true, true, true), []*clusterv1.Shard{lost}, 1, 1, "1 shard has fewer than 3 reachable replicas, 1 without a majority, so their entities do not answer; see 'hostd shard ls'"},
		"a node was put down":      {three, members(true, true), []*clusterv1.Shard{shard("a", "b")}, 1, 0, "1 shard has fewer than 3 reachable replicas; see 'hostd shard ls'"},
		"one that answers is down": {three, down, []*clusterv1.Shard{shard("a", "b", "c")}, 1, 0, "1 shard has fewer than 3 reachable replicas; see 'hostd shard ls'"},
		"the voters do not vote":   {three, members(true, true, true), []*clusterv1.Shard{leaderless, shard("a", "b", "c")}, 0, 0, "1 shard has no leader, so its entities do not answer; see 'hostd shard ls'"},
		"one dead, one leaderless": {three, members(true, true, false), []*clusterv1.Shard{leaderless, leaderless}, 2, 0, "2 shards have fewer than 3 reachable replicas, 2 have no leader, so their entities do not answer; see 'hostd shard ls'"},
		"a voter is no member":     {three, members(true, true), []*clusterv1.Shard{shard("a", "b", "z")}, 1, 0, "1 shard has fewer than 3 reachable replicas; see 'hostd shard ls'"},
		"more than the policy":     {&clusterv1.Policy{Replication: 1}, members(true, true, true), []*clusterv1.Shard{shard("a", "b", "c")}, 0, 0, ""},
		"one of one is dead":       {&clusterv1.Policy{Replication: 1}, members(true, false), []*clusterv1.Shard{shard("a"), shard("b")}, 1, 1, "1 shard has fewer than 1 reachable replicas, 1 without a majority, so their entities do not answer; see 'hostd shard ls'"},
		"nothing is placed yet":    {three, members(true, true, true), []*clusterv1.Shard{shard()}, 0, 0, ""},
		"no policy, as of old":     {nil, members(true, true, false), []*clusterv1.Shard{shard("a", "b", "c")}, 1, 0, "1 shard has fewer than 3 reachable replicas; see 'hostd shard ls'"},
		"half of four answer":      {three, members(true, true, false, false), []*clusterv1.Shard{shard("a", "b", "c", "d")}, 1, 1, "1 shard has fewer than 3 reachable replicas, 1 without a majority, so their entities do not answer; see 'hostd shard ls'"},
		"learners are no voters":   {three, members(true, true, false), []*clusterv1.Shard{{Leader: "a", Voters: []string{"a", "b"}, Learners: []string{"c"}}}, 1, 0, "1 shard has fewer than 3 reachable replicas; see 'hostd shard ls'"},
	} {
		got := Of(c.policy, c.members, c.shards)
		if got.Lacking != c.lacking || got.Halted != c.halted || got.Line() != c.says {
			t.Errorf("%s: %d lacking, %d halted, %q; want %d, %d, %q", name, got.Lacking, got.Halted, got.Line(), c.lacking, c.halted, c.says)
		}
	}
}

// The weakest shard determines how many further nodes may fail.
func TestTolerance(t *testing.T) {
	members := func(reached ...bool) (out []*clusterv1.Member) {
		for i, r := range reached {
			out = append(out, &clusterv1.Member{NodeId: string(rune('a' + i)), Status: "up", Reachable: r})
		}
		return out
	}
	five, three := &clusterv1.Shard{Leader: "a", Voters: []string{"a", "b", "c", "d", "e"}}, &clusterv1.Shard{Leader: "a", Voters: []string{"a", "b", "c"}}
	down := members(true, true, true, true, true)
	down[1].Status = "down"
	for name, c := range map[string]struct {
		members []*clusterv1.Member
		shards  []*clusterv1.Shard
		want    string
	}{
		"five of five":         {members(true, true, true, true, true), []*clusterv1.Shard{five}, "every shard survives the loss of 2 more nodes"},
		"the weakest counts":   {members(true, true, true, true, true), []*clusterv1.Shard{five, three}, "every shard survives the loss of 1 more node"},
		"three of five":        {members(true, true, true, false, false), []*clusterv1.Shard{five, three}, "1 shard does not survive the loss of one more voter"},
		"two of three":         {members(true, true, false, true, true), []*clusterv1.Shard{three, three, five}, "2 shards do not survive the loss of one more voter"},
		"one of five is down":  {down, []*clusterv1.Shard{five}, "every shard survives the loss of 1 more node"},
		"one has no leader":    {members(true, true, true), []*clusterv1.Shard{three, {Voters: []string{"a", "b", "c"}}}, ""},
		"a majority is lost":   {members(true, false, false, true, true), []*clusterv1.Shard{three, five}, ""},
		"nothing is there yet": {members(true, true, true), []*clusterv1.Shard{{}}, ""},
	} {
		if got := Of(nil, c.members, c.shards).Tolerance(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
